"""Ctrl-C ends a kernel that never does, at once and with nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gfx950_assembler import assemble
from notes import without_notes

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")

_LAUNCH = """grid = [8, 1, 1]
block = [64, 1, 1]
allow_unset = true
[buffers.y]
bytes = 64
output = "y.npy"
[[arguments]]
offset = 0
buffer = "y"
"""
_COMMAND = "import sys; from mlagen.cli.main import main; main()"


@pytest.mark.parametrize("threads", [1, 4])
def test_an_endless_kernel_of_8_workgroups(tmp_path: Path, threads: int) -> None:
    (tmp_path / "k.co").write_bytes(assemble("  s_branch -1\n"))
    (tmp_path / "launch.toml").write_text(_LAUNCH)
    command = [sys.executable, "-c", _COMMAND, "emulate", "k.co", "--launch", "launch.toml"]
    process = subprocess.Popen(
        [*command, "--threads", str(threads)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until_it_runs(process, threads)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, without_notes(err)) == (130, "", "error: interrupted\n")
    assert time.monotonic() - started < 30  # a slice of each workgroup, on a busy machine
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k.co", "launch.toml"]


def _wait_until_it_runs(process: subprocess.Popen[str], threads: int) -> None:
    """The engine is mapped from its cache (or being compiled), and the workers are there."""
    deadline = time.monotonic() + 300
    before = 0.0
    while time.monotonic() < deadline and process.poll() is None:
        if threads > 1 and len(os.listdir(f"/proc/{process.pid}/task")) > threads:  # noqa: PTH208
            return
        if threads == 1:
            # One thread says nothing: what the engine takes of the processor goes on and on.
            text = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used = (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")
            before = before or (used if _mapped(process.pid) else 0.0)
            if before and used > before + 1:
                return
        time.sleep(0.05)


def _mapped(pid: int) -> bool:
    return "llvmlite" in Path(f"/proc/{pid}/maps").read_text()
