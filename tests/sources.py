"""A number that changes with the sources, and only then: which samples a test run takes."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def sources(*folders: str) -> int:
    """A checksum of all Python files and templates in these folders of the checkout."""
    paths = sorted(x for folder in folders for x in (ROOT / folder).rglob("*") if x.is_file())
    found = 0
    for path in paths:
        if path.suffix in (".py", ".j2"):
            found = zlib.crc32(path.read_bytes(), found)
    return found
