"""How a process ends: standard output that is gone or full, interrupts, disks that take no more."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gfx950_assembler import assemble
from scale_kernel import LAUNCH, write_case
from small_kernel import make

from mlagen.artifact import write_artifact
from mlagen.cli import ending
from mlagen.cli.main import run
from mlagen.disk import checked_output, write_file, write_files
from mlagen.errors import ConfigError, WriteError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MLAGEN = [sys.executable, "-m", "mlagen"]
LOOP = """  s_mov_b32 s8, 8
head:
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 head
  s_endpgm
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with an artifact, a code object and its launch file, and one with a loop."""
    write_artifact(make(), tmp_path / "add")
    write_case(tmp_path, LAUNCH)
    (tmp_path / "loop.co").write_bytes(assemble(LOOP))
    (tmp_path / "loop.toml").write_text("grid = [1, 1, 1]\nblock = [64, 1, 1]\n")
    return tmp_path


def ended(where: Path, *arguments: str, **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MLAGEN, *arguments], cwd=where, stderr=subprocess.PIPE, text=True, timeout=120,
        check=False, env={**os.environ, "MLAGEN_CACHE_DIR": str(where / "cache")}, **streams,
    )  # fmt: skip


PRINTING = {
    "list": 0,
    "--help": 0,
    "simulate --constants": 0,
    "doctor --json": 0,
    "tune show": 0,
    "diff add add": 0,
    "inspect add --json": 0,
    "audit add": 0,
    "emulate k.co --template": 0,
    "audit k.co --limit 1": 6,  # what a command found out is not lost with its reader
    "list nope": 2,
}


@pytest.mark.parametrize("line", PRINTING)
def test_a_reader_that_leaves_is_harmless(small: Path, line: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        done = ended(small, *line.split(), stdout=nobody)
    assert done.returncode == PRINTING[line], done.stderr
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
    assert bool(done.stderr) == bool(PRINTING[line])


def test_a_full_or_closed_output_is_told(small: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = ended(small, "list", stdout=full)
    assert done.returncode == 5
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
    closed = ended(small, "list", preexec_fn=lambda: os.close(1))
    assert closed.returncode == 5
    assert closed.stderr.startswith("error: standard output is closed\n")
    silent = subprocess.run(
        ["/bin/sh", "-c", f"'{sys.executable}' -m mlagen list nope 2>&-"], check=False, timeout=60
    )
    assert silent.returncode == 2


@pytest.mark.parametrize("code", ["{}", "exec({!r})"])
def test_an_interrupt_while_it_imports_is_one_line(tmp_path: Path, code: str) -> None:
    """Where the interpreter itself has begun: before, an interrupt is not ours to answer. One in a
    text that is executed ends a process by the signal unless that is prevented."""
    interrupt = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"
    (tmp_path / "click.py").write_text(code.format(interrupt))
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*MLAGEN, "list"], env=path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


@pytest.mark.parametrize("seconds", [0.3, 2.5])
def test_an_interrupt_of_mutate_ends_its_processes(tmp_path: Path, seconds: float) -> None:
    file = str(EXAMPLES / "gemm_bf16.py")
    assert run(["build", file, "--target", "gfx950", "-o", str(tmp_path / "k")]) == 0
    process = subprocess.Popen(
        [*MLAGEN, "mutate", "k", "--problem", file], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all of them
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "error: interrupted")


@contextmanager
def no_room() -> Iterator[None]:
    """A disk that takes nothing, as this process sees it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


WRITING = (
    f"build {EXAMPLES / 'gemm_bf16.py'} --target gfx950 -o a/b/k",
    "inspect add --html a/b/page.html",
    "diff add add --html a/b/page.html",
    "emulate k.co --launch launch.toml --out a/b",
    "simulate loop.co --launch loop.toml --no-grid --trace a/b/t.json",
    "simulate loop.co --launch loop.toml --no-grid --timeline a/b/t.html",
)


@pytest.mark.parametrize("line", WRITING)
def test_a_full_disk_leaves_nothing_and_a_missing_folder_is_made(
    mlagen, small: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    mlagen(*line.split())  # what is compiled once is there
    assert any((small / "a" / "b").iterdir())
    shutil.rmtree(small / "a")
    before = sorted(small.rglob("*"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with monkeypatch.context() as patched:
        for module in ("mlagen.disk", "mlagen.artifact.files"):
            patched.setattr(f"{module}.write_files", without_room)
        done = mlagen(*line.split())
    assert done.code == 5 and "cannot be written" in done.err, done
    assert sorted(small.rglob("*")) == before


def without_room(directory: Path, payloads: dict[str, bytes]) -> None:
    """`write_files` under `no_room`: the assembler before it needs its temporary files."""
    with no_room():
        write_files(directory, payloads)


def test_errors_of_the_machine_end_with_5_and_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, said in (
        (OSError(28, "No space left on device", "/x/y"), "/x/y: No space left on device"),
        (OSError(30, "Read-only file system"), "Read-only file system"),
        (MemoryError("of 3 GiB"), "this machine has not enough memory: of 3 GiB"),
    ):

        def main(raised: BaseException = error, **_: object) -> None:
            raise raised

        monkeypatch.setattr(ending.cli, "main", main)
        assert run(["list"]) == 5
        assert capsys.readouterr().err.startswith(f"error: {said}\n")


def test_a_defect_of_ours_is_called_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ending.cli, "main", lambda **_: 1 / 0)
    assert run(["list"]) == 1
    assert capsys.readouterr().err == (
        "error: a defect of mlagen: ZeroDivisionError: division by zero\n"
        "  hint: -v shows where; please report it\n"
    )


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(WriteError, match="No space left on device"):
        write_file(tmp_path / "full", b"data")
    assert (tmp_path / "full").is_symlink() and (tmp_path / "full").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    with os.fdopen(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write_file(tmp_path / "pipe", b"data")
        assert reader.read() == b"data"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "pipe"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told_before_the_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(WriteError, match="read-only"):
        checked_output(tmp_path / "x")


def test_an_output_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no file"):
        write_file("", b"")
