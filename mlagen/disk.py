"""Files: read, or written whole or not at all; errors name them.

Folders that are missing are made. What is there and is no regular file (a device, a pipe) is
written to, never replaced.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mlagen.errors import ConfigError, MissingError, WriteError


def read_file(path: Path | str) -> bytes:
    """The bytes of a file. MissingError."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise MissingError(f"{path} cannot be read: {_why(error)}") from None


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
