"""Folders in which a tool works: gone when it is done, and after a kill at the next build."""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # a system without locks: nothing forgotten is found
    fcntl = None  # type: ignore[assignment]

PREFIX = "mlagen.scratch."
_NAME = re.compile(rf"{re.escape(PREFIX)}[a-z0-9_]{{8}}")
_YOUNG = 60.0  # seconds: a folder may not have its lock yet


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder below the system's for temporary files. Its lock ends with its process, however that
    ends. OSError where there is no room for it."""
    _tidied()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forgotten() -> list[Path]:
    """Folders of processes of this user that were killed."""
    if fcntl is None:
        return []
    found = []
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        found = [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]
    return [folder for folder in sorted(found) if _is_forgotten(folder)]


def remove_forgotten(folder: Path) -> None:
    """Remove such a folder with its files, unless it holds anything else too. OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(handle) as entries:
            inside = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        for name in inside if all(inside.values()) else ():
            os.unlink(name, dir_fd=handle)
    finally:
        os.close(handle)
    folder.rmdir()


@functools.cache
def _tidied() -> None:
    """Once a process."""
    for folder in forgotten():
        with suppress(OSError):  # another build is faster, or something else lies there
            remove_forgotten(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: no folder is ever found forgotten
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _is_forgotten(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return False
        if status.st_mtime > time.time() - _YOUNG:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:  # somebody works in it
        return False
    finally:
        os.close(handle)
