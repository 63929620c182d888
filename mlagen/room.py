"""Memory of this machine: what is free, and refusing what has not the room."""

from __future__ import annotations

from pathlib import Path

from mlagen.errors import ConfigError

_SPARE = 1 << 28  # bytes that are left to the others
_GROUP = Path("/sys/fs/cgroup")  # of a container (kernel.org, admin-guide/cgroup-v2, memory)


def free_bytes() -> int | None:
    """Bytes that a process of this machine or container may still take; None: nobody knows."""
    found = [_available(), _left_in_group()]
    known = [count for count in found if count is not None]
    return min(known) if known else None


def require_room(count: int, what: str) -> None:
    """ConfigError where `count` bytes more, for `what`, are more than this machine has free."""
    free = free_bytes()
    if count > _SPARE and free is not None and count > free - _SPARE:
        raise ConfigError(
            f"{what} take {readable(count)}; this machine has {readable(free)} free",
            hint="smaller sizes fit",
        )


def readable(count: int) -> str:
    """Bytes for a message: "18.0 GiB"."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return None


def _left_in_group() -> int | None:
    try:
        most = int((_GROUP / "memory.max").read_text())  # "max": none
        cached = sum(
            int(line.split()[1])
            for line in (_GROUP / "memory.stat").read_text().splitlines()
            if line.split()[0] in ("inactive_file", "active_file")
        )
        return most - int((_GROUP / "memory.current").read_text()) + cached
    except (OSError, ValueError, IndexError):
        return None
