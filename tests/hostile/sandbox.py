"""Runs `mlagen` on a stranger's file under limits, and says what it took.

A server process imports everything once; each case is a fork of it with limits of its own:

    python tests/hostile/sandbox.py      # lines of JSON in, lines of JSON out
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20  # of processor time, whatever the file
MEMORY = 2_000_000_000  # bytes in use
_ADDRESSES = 6 << 30  # a backstop: what is asked for, used or not


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code (negative: the signal that ended it), text, and its cost."""

    code: int
    out: str
    err: str
    seconds: float
    memory: int

    def check(self, *, several: bool = False) -> None:
        """The rule: an answer or a deliberate error, in 20 s and 2 GB. `several`: what was asked
        is of several files, and lines on others go before the error."""
        said = (self.out + self.err)[-2000:]
        assert self.code in (0, 2, 4, 5), f"exit code {self.code}, {self.seconds:.1f} s: {said}"
        assert "Traceback" not in said, said
        assert self.code in (0, 4) or self.err.startswith("error: ") or several, said
        assert self.seconds < SECONDS and self.memory < MEMORY, f"{self.seconds} s, {self.memory}"
        shown = self.out + self.err
        assert all(c.isprintable() or c == "\n" for c in shown), repr(said)


class Sandbox:
    """The server, seen from the tests."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, *arguments: object, cwd: Path) -> Ran:
        """One command with `cwd` as its folder."""
        assert self._server.stdin is not None and self._server.stdout is not None
        request = {"arguments": [str(a) for a in arguments], "cwd": str(cwd)}
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()
        return Ran(**json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


def _serve() -> None:
    import importlib

    from mlagen.cli.main import run
    from mlagen.cli.verbs import VERBS

    sys.path.insert(0, str(Path(__file__).parent.parent / "binary"))
    for verb in VERBS:
        importlib.import_module(f"mlagen.cli.{verb}")
    _warm(run)
    while line := sys.stdin.readline():
        print(json.dumps(_case(run, **json.loads(line))), flush=True)


def _warm(run) -> None:
    """Each command once on a kernel that only ends: imports, and the compiled engine, are done."""
    from elf_files import code_object

    with tempfile.TemporaryDirectory() as folder:
        _case(run, [], folder)  # nothing
        path, launch = Path(folder, "k.co"), Path(folder, "l.toml")
        path.write_bytes(code_object())
        launch.write_text("grid = [1, 1, 1]\nblock = [64, 1, 1]\n")
        saved = os.dup(1), os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        run(["inspect", str(path)])
        run(["audit", str(path)])
        run(["emulate", str(path), "--launch", str(launch), "--threads", "1"])
        run(["simulate", str(path), "--launch", str(launch)])
        os.dup2(saved[0], 1), os.dup2(saved[1], 2)


def _case(run, arguments: list[str], cwd: str) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 5))
                resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
                os.chdir(cwd)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the server's has requests
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                code = run(arguments) if arguments else 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        deadline = time.monotonic() + 20 * SECONDS  # a wait without work; the machine may be busy
        while True:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(child, 9)
            time.sleep(0.01)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="replace"))
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": texts[0],
        "err": texts[1],
        "seconds": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * 1024,
    }


if __name__ == "__main__":
    _serve()
