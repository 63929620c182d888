"""PTX files."""

from __future__ import annotations

from pathlib import Path

from mlagen.disk import read_file
from mlagen.errors import BinaryError


def read_text(path: Path) -> str:
    """The text of a file. BinaryError where it is none, MissingError where it cannot be read."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise BinaryError(f"{path}: byte {error.start} is no UTF-8, so it is no PTX") from None
