"""A Python call that takes seconds says so at a terminal and nowhere else; the log has it."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys

import pytest

from mlagen import telling

SLOW = """
import logging, sys, time
from mlagen import telling
{setup}
telling._SHORT = 0.05
log = logging.getLogger("mlagen.build")
with telling.telling(log, "building quickly"):
    pass
with telling.telling(log, "building slowly"):
    time.sleep(0.4)
telling.tell(log, "compiling")
"""


def said(setup: str = "", *, terminal: bool) -> list[str]:
    """Lines on the standard error of a process."""
    command = [sys.executable, "-c", SLOW.format(setup=setup)]
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stderr.splitlines()
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stderr=slave)
    os.close(slave)
    text = b""
    with os.fdopen(master, "rb", buffering=0) as stream:
        try:
            while part := stream.read(1 << 12):
                text += part
        except OSError:  # how Linux says that the other side has gone
            pass
    assert process.wait() == 0
    return text.decode().splitlines()


def test_at_a_terminal() -> None:
    assert said(terminal=True) == ["mlagen: building slowly …", "mlagen: compiling …"]
    heard = "logging.basicConfig(level=logging.INFO, format='%(message)s')"
    listening = ["building quickly", "building slowly", "compiling"]
    assert said(heard, terminal=True) == listening
    assert said(heard, terminal=False) == listening
    assert said(terminal=False) == []


def test_without_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    telling.tell(logging.getLogger("mlagen.none"), "nothing")
