"""Running `mlagen` inside the test's process, with a store of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from notes import without_notes

from mlagen import env
from mlagen.cli.main import run

for _folder in ("binary", "emulator"):  # small kernels that tests there share
    sys.path.insert(0, str(Path(__file__).parent.parent / _folder))


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def mlagen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """`mlagen("build", "KERNEL", …)`; nothing it prints may be a traceback."""
    monkeypatch.setenv(env.CACHE_DIR, str(tmp_path / "cache"))

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Outcome(code, out, without_notes(err))

    return call
