"""Files: read, or written whole or not at all; errors name them.

A file that is read is a regular one and has a limit: a device or a pipe may never end. Folders that
are missing are made. What is there and is no regular file is written to, never replaced.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mlagen.errors import ConfigError, MissingError, WriteError

LARGEST = 256 << 20  # bytes of a file that is read
_WAITING = re.compile(r"\.mlagen\.[0-9a-f]{12}")  # a file that has not got its own name yet
_STALE = 3600.0  # seconds after which nobody writes to such a file any more


def read_file(path: Path | str, *, limit: int = LARGEST, what: str = "") -> bytes:
    """The bytes of a file of at most `limit`. MissingError, which says `what` cannot be read (the
    path), for a device, a pipe, a longer file, and for one that is not there."""
    what = what or str(path)
    try:
        # Without O_NONBLOCK opening a pipe waits for somebody who writes to it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            return _read(handle, limit)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise MissingError(f"{what} cannot be read: {_why(error)}") from None


def _read(handle: int, limit: int) -> bytes:
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is a device or a pipe, not a file")
    size, data = status.st_size, b""
    if size <= limit:
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)  # a file may grow, and those of /proc say 0
        size = max(size, len(data))
    if size > limit:
        raise ValueError(f"it has {size} bytes; at most {limit} are read")
    return data


def exists(path: Path | str) -> bool:
    """Whether something lies there: never so under a name that no file can have."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def write_file(path: Path | str, data: bytes | memoryview) -> None:
    """Writes `data` to `path`, whole or not at all. WriteError."""
    path = checked_output(path)
    write_files(path.parent, {path.name: data})


def write_files(directory: Path, payloads: Mapping[str, bytes | memoryview]) -> None:
    """Writes all `payloads` (name -> bytes) into `directory`, or none of them. WriteError.

    All bytes are on disk under temporary names before the first file gets its own; names are given
    in the order of `payloads`. Directories made for a write that failed are removed again.
    """
    temporary: dict[str, Path] = {}
    placed: list[Path] = []
    made: list[Path] = []
    at = directory
    try:
        made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        for forgotten in waiting_files(directory):
            with suppress(OSError):  # not ours to remove
                forgotten.unlink()
        for name, data in payloads.items():
            at = directory / name
            if at.exists() and not at.is_file():
                at.write_bytes(data)
                continue
            waiting = directory / f".mlagen.{secrets.token_hex(6)}"
            temporary[name] = waiting
            with waiting.open("xb") as file:
                file.write(data)
        for name, waiting in temporary.items():
            at = directory / name
            waiting.replace(at)
            placed.append(at)
    except BaseException as error:
        # What was there before a failed rewrite is left to the digests: a mix is refused on read.
        for leftover in (*temporary.values(), *(placed if made else ())):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):  # not empty: another process put something there
                folder.rmdir()
        if isinstance(error, OSError | ValueError):
            raise _cannot(at, error) from error
        raise


def is_waiting(name: str) -> bool:
    """Whether a file has the name that `write_files` gives one before it gets its own."""
    return _WAITING.fullmatch(name) is not None


def waiting_files(directory: Path, *, older: float = _STALE) -> list[Path]:
    """Files in `directory` that `write_files` never gave their names, as it was killed before:
    those that are `older`, in seconds. OSError."""
    until = time.time() - older
    with os.scandir(directory) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if is_waiting(entry.name)
            and entry.is_file(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_mtime <= until
        ]


def checked_output(path: Path | str, *, folder: bool = False) -> Path:
    """The path of a file to be written (or of a folder to be filled), where that can be known to
    work before the work is done. ConfigError for no name; WriteError for a place that takes none.
    """
    if not os.fspath(path):
        raise ConfigError("'' names no folder to write to" if folder else "'' names no file")
    given = Path(path)
    try:
        if given.exists():
            if given.is_dir() != folder:
                raise WriteError(f"{given} cannot be written: it is {_kind(given)}")
            held = given if folder else given.parent
        else:
            held = next((one for one in given.parents if one.exists()), Path())
            if not held.is_dir():
                raise WriteError(f"{given} cannot be written: {held} is {_kind(held)}")
            with suppress(FileNotFoundError):
                given.lstat()  # a name that is too long
    except (OSError, ValueError) as error:
        raise _cannot(given, error) from error
    if not os.access(held, os.W_OK):
        raise WriteError(f"{given} cannot be written: {held} is read-only here")
    return given


def _kind(path: Path) -> str:
    return "a folder" if path.is_dir() else "a file" if path.is_file() else "a device or a pipe"


def _cannot(path: Path, error: Exception) -> WriteError:
    return WriteError(f"{path} cannot be written: {_why(error)}")


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
