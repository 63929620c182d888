"""Processes that work for a command: Ctrl-C is the command's alone, and ends them with it. None
runs a file of the current folder that is called like a module."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SAFE = "PYTHONSAFEPATH"  # Python puts neither the current folder nor a script's on its path
SAFE = {_SAFE: "1"}


def python_command(code: str) -> list[str]:
    """The command for `code` in a Python of its own. It finds what this one finds, but for what
    lies in the current folder alone; mlagen is this one."""
    here = {"", str(Path.cwd())}
    found = [place for place in sys.path if place not in here]
    found.append(str(Path(__file__).resolve().parents[1]))
    path = f"import sys; sys.path += [p for p in {found!r} if p not in sys.path]"
    return [sys.executable, "-P", "-c", f"{path}; {code}"]


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes that `multiprocessing` spawns inside, its own helpers too, do not look for modules
    in the current folder."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE, None)
        else:
            os.environ[_SAFE] = before


@contextmanager
def working(
    pool: ProcessPoolExecutor, function: Callable[..., Any], items: Iterable[Any]
) -> Iterator[list[Future[Any]]]:
    """`function` of each item, in the pool's processes, as futures in the items' order. Whatever
    ends the block early kills the processes."""
    others = set(multiprocessing.active_children())
    try:
        with _shielded():  # an interrupt that waited comes when this ends
            futures = [pool.submit(function, item) for item in items]
        yield futures
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise


@contextmanager
def _shielded() -> Iterator[None]:
    """Processes that are started inside never see the terminal's Ctrl-C, not even while they
    import: they inherit what this thread blocks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
