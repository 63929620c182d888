"""Processes that work for a command: Ctrl-C is the command's alone, and ends them with it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any


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
