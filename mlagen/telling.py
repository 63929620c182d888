"""Saying what takes seconds, where a person waits for it at a terminal.

The log has it in any case (`logging`, names from "mlagen" on). Who listens to the log, as the
command line does, is told by that; who is at no terminal is told by nothing else.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT = 1.0  # seconds that nobody minds waiting for


def tell(log: logging.Logger, text: str) -> None:
    """Now."""
    log.info("%s", text)
    _print(text)


@contextmanager
def telling(log: logging.Logger, text: str) -> Iterator[None]:
    """When the body has taken a second."""
    log.info("%s", text)
    if not _watched():
        yield
        return
    later = threading.Timer(_SHORT, _print, (text,))
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()


def _watched() -> bool:
    stream = sys.stderr
    return stream is not None and stream.isatty() and not logging.getLogger("mlagen").hasHandlers()


def _print(text: str) -> None:
    if _watched():
        print(f"mlagen: {text} …", file=sys.stderr, flush=True)
