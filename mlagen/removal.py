"""Removing files without following a link.

A folder is opened once, as itself, and what it holds is named relative to it: whoever puts a link
into its place meanwhile changes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, of that name in the folder `within`. OSError for anything else, and
    for a link to one."""
    handle = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield handle
    finally:
        os.close(handle)


def files(folder: int) -> dict[str, int]:
    """Names of regular files in an open folder with their bytes; links are none. OSError."""
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if entry.is_file(follow_symlinks=False)
        }


def names(folder: int) -> list[str]:
    """All names in an open folder. OSError."""
    return sorted(os.listdir(folder))


def head(folder: int, name: str, count: int) -> bytes:
    """The first bytes of a regular file; none of anything else."""
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(handle, count) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)


def is_link(path: Path) -> bool:
    """Whether a link lies there, wherever it leads."""
    try:
        return stat.S_ISLNK(path.lstat().st_mode)
    except (OSError, ValueError):
        return False
