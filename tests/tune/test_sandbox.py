"""Calls in processes of their own: values, errors, deaths, time, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_judges

from mlagen.errors import WrongResultError
from mlagen.tune.sandbox import Died, Sandbox, TimedOut


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()


def gone(pid: int, patience: float = 5.0) -> bool:
    """Whether a process ends (a zombie has ended)."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_values_errors_and_deaths_come_back(sandbox: Sandbox) -> None:
    assert sandbox.call(toy_judges.ten, limit=20) == 10
    with pytest.raises(WrongResultError, match="planted") as error:
        sandbox.call(toy_judges.raises, limit=20)
    assert error.value.hint == "none"
    with pytest.raises(Died, match=r"exit code 7: last words"):
        sandbox.call(toy_judges.exits, 7, limit=20)
    with pytest.raises(Died, match="SIGABRT"):
        sandbox.call(os.abort, limit=20)
    assert sandbox.call(toy_judges.ten, limit=20) == 10  # it goes on


def test_an_endless_call_is_stopped_with_all_that_it_started(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    monkeypatch.setenv("TOY_NOTES", str(note))
    started = time.monotonic()
    with pytest.raises(TimedOut):
        sandbox.call(toy_judges.deaf, 60.0, limit=1)
    assert time.monotonic() - started < 10
    assert gone(int(note.read_text()))


def test_a_killed_asker_leaves_nothing_running(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import toy_judges; from mlagen.tune.sandbox import Sandbox\n"
        "Sandbox().call(toy_judges.deaf, 60.0, limit=60)"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TOY_NOTES": str(note)}
    )
    until = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    asker.send_signal(signal.SIGKILL)
    asker.wait()
    assert gone(int(note.read_text()))


def test_a_killed_forker_is_started_again(sandbox: Sandbox) -> None:
    assert sandbox.call(toy_judges.ten, limit=20) == 10
    assert sandbox._process is not None
    sandbox._process.kill()
    assert sandbox.call(toy_judges.ten, limit=20) == 10
