"""What readers of files from strangers share: JSON that may hold anything, text that is shown, and
limits on what reading may take.

Who is trusted is in SECURITY.md.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

_LINES = frozenset("\n\t")
_UNINDENTED = re.compile(r"\n(?![ \n]|$)")
SECONDS = 15.0  # of CPU, that a command takes for a stranger's file; promised are 20 s and 2 GB
_MEMORY = 1 << 30  # bytes beyond what the process had
_LOOK = 0.05  # seconds of CPU between looks


def decode_json(data: bytes | str, type: Any = Any) -> Any:
    """`data` as a value of `type`. ValueError with one line that says where it is none.

    Nesting beyond the interpreter's limit, bytes that are no UTF-8 and numbers beyond 64 bits (in
    untyped places: beyond what a float holds) are refused like any other mistake.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        # Versions of msgspec differ in which of the two they raise for bytes that are no text.
        raise ValueError(_no_text(data) or str(error).partition("\n")[0]) from None


def _no_text(data: bytes | str) -> str:
    """Where bytes are no UTF-8, in words; empty where they are."""
    try:
        if not isinstance(data, str):
            bytes(data).decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} is no UTF-8"
    return ""


def printable(text: str) -> str:
    """`text` as a terminal may see it: characters that steer one (escapes, backspaces, changes of
    the writing direction) become `\\x1b` and the like. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in _LINES else _escaped(letter) for letter in text
    )


def indented(text: str) -> str:
    """`printable` text whose further lines begin with blanks: none looks like a line of ours."""
    return _UNINDENTED.sub("\n  ", printable(text))


def words(error: BaseException) -> str:
    """An exception as its type and what it says, where a stranger's can say it."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class Spent(BaseException):
    """A limit of `within` was met; its text says which. No Exception, so that nobody who expects
    one from a file's content takes it for that."""


@contextmanager
def within(seconds: float = SECONDS) -> Iterator[None]:
    """Raises Spent in the block, wherever it is, once it has taken so many seconds of CPU time (0:
    any number), or a gigabyte of memory.

    By a timer's signal, which Python hands to the main thread: elsewhere, and where a system has no
    such timer, nothing is limited. One call in C (a product of huge numbers, an array) ends first.
    Where somebody around has set that timer, it is theirs that counts for the seconds.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        yield
        return
    active = True
    outer, _ = signal.getitimer(signal.ITIMER_PROF)
    started, most = time.process_time(), _resident() + _MEMORY
    until = started + (outer or seconds or float("inf"))

    def look(number: int, frame: FrameType | None) -> None:
        if not active:
            return
        late = time.process_time() >= until
        if late and outer:
            if callable(before):
                before(number, frame)
        elif late:
            raise Spent(f"its limit of {seconds:g} s of CPU time")
        if _resident() >= most:
            raise Spent(f"its limit of {_MEMORY >> 20} MiB of memory")

    before = signal.signal(signal.SIGPROF, look)
    _, again = signal.setitimer(signal.ITIMER_PROF, _LOOK, _LOOK)
    try:
        try:
            yield
        finally:
            active = False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if outer:  # at once, should its time be over
            left = max(until - time.process_time(), _LOOK)
            signal.setitimer(signal.ITIMER_PROF, left, again)


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
