"""A Dask scheduler and the workers of one host, as processes of their own with a log each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TAG = "sm_90a"
STARTED = time.monotonic()


def say(*what: object) -> None:
    """A line with the seconds since the start, at once."""
    line = " ".join(map(str, what))
    print(f"[{time.monotonic() - STARTED:6.1f}] {line}\n", end="", flush=True)  # one write


@dataclass
class Host:
    """A scheduler and the workers of this machine, by what they are for."""

    folder: Path
    address: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, gpus: int, builders: int) -> None:
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._dask("scheduler", "scheduler", "--host", "127.0.0.1", "--port", str(port))
        for gpu in range(gpus):
            self._worker(f"gpu{gpu}", str(gpu), "--resources", f"{TAG}=1")
            for number in range(builders):
                self._worker(f"builder{gpu}.{number}", "")

    def _worker(self, name: str, gpu: str, *options: str) -> None:
        self._dask("worker", name, self.address, "--nthreads", "1", "--no-nanny", "--name", name,
                   "--local-directory", str(self.folder), *options, gpu=gpu)  # fmt: skip

    def _dask(self, role: str, name: str, *options: str, gpu: str = "") -> None:
        path = f"{ROOT}:{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": gpu,
                       "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1",
                       "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{role}", "--no-dashboard", *options],
                env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def keep(self, gpus: int) -> None:
        """End the workers of further GPUs."""
        for name in [n for n in self.processes if n != "scheduler"]:
            if int("".join(c for c in name.partition(".")[0] if c.isdigit())) >= gpus:
                self._end(name)

    def _end(self, name: str) -> None:
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in list(self.processes):
            self._end(name)

    def told(self, lines: int = 12) -> Iterator[str]:
        """The ends of the logs, after the stacks of those that still run."""
        for name, process in self.processes.items():
            if process.poll() is None and not name.startswith("builder"):
                process.send_signal(signal.SIGABRT)  # faulthandler writes its stacks
        time.sleep(1)
        for path in sorted(self.folder.glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            if path.stem in ("scheduler", "gpu0") or any("Error" in line for line in tail):
                yield f"--- {path.stem}"
                yield from tail
