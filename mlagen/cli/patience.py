"""A limit on the processor time of a command that takes a stranger's file apart."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from mlagen.errors import UnsupportedError

seconds_option = click.option(
    "--max-seconds",
    type=click.IntRange(1),
    default=15,
    show_default=True,
    help="Most processor time; a large kernel may need more.",
)


@contextmanager
def at_most(seconds: int, what: str) -> Iterator[None]:
    """UnsupportedError when the body takes more processor time than that.

    Only the main thread of a Unix process can be interrupted; elsewhere there is no limit.
    """
    if not hasattr(signal, "setitimer") or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise UnsupportedError(
            f"{what} took over {seconds} s of processor time", hint="--max-seconds allows more"
        )

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
