"""Who works on a trial, so that what a dead process began is done by another."""

from __future__ import annotations

import os
import platform
from itertools import count
from pathlib import Path

STALE = 60.0  # seconds without a beat, after which an owner elsewhere counts as dead

_count = count()


def me() -> str:
    """This process and one more number: host, process, when it started, since numbers come back."""
    return f"{platform.node()}:{os.getpid()}:{_started(os.getpid())}.{next(_count)}"


def dead(owner: str, beat: float, now: float) -> bool:
    """Whether an owner has gone: at once where it was on this host."""
    host, number, started = owner.rsplit(":", 2)
    if host != platform.node():
        return now - beat > STALE
    return _started(int(number)) != started.partition(".")[0]


def _started(number: int) -> str:
    """When a process started, in the kernel's clock; "" where there is none of that number."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return "" if Path("/proc").is_dir() else _exists(number)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _exists(number: int) -> str:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "0"
