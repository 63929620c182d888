"""PTX files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlagen.disk import read_file
from mlagen.errors import BinaryError, MissingError, UnsupportedError


@contextmanager
def named(file: str) -> Iterator[None]:
    """What the reader refuses of a text, with the file's name before it."""
    try:
        yield
    except (BinaryError, MissingError, UnsupportedError) as error:
        raise type(error)(f"{file}: {error.message}", hint=error.hint) from None


def read_text(path: Path) -> str:
    """The text of a file. BinaryError where it is none, MissingError where it cannot be read."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise BinaryError(f"{path}: byte {error.start} is no UTF-8, so it is no PTX") from None
