"""Places in a text: lines, ends of statements, closing brackets, and errors that name a line."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from mlagen.errors import UnsupportedError

# What reading raises where a text is not understood.
MISREAD = (ValueError, KeyError, IndexError, OverflowError, RecursionError, struct.error)


class Positions:
    """A text with its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line(self, at: int) -> int:
        """1-based line of a position."""
        return bisect_right(self._starts, at)

    def statement_end(self, at: int) -> int:
        """Index of the `;` that ends the statement at `at`."""
        end = self.text.find(";", at)
        if end < 0:
            raise UnsupportedError(f"line {self.line(at)}: a statement without its ';'")
        return end

    def close(self, at: int) -> int:
        """Index of the bracket that closes the one at `at`."""
        pairs = {"{": "}", "(": ")"}
        opening, closing = self.text[at], pairs[self.text[at]]
        depth = 0
        for match in re.compile(rf"[{re.escape(opening + closing)}]").finditer(self.text, at):
            depth += 1 if match.group() == opening else -1
            if not depth:
                return match.start()
        raise UnsupportedError(f"line {self.line(at)}: '{opening}' is never closed")


@contextmanager
def located(line: int, text: str) -> Iterator[None]:
    """What cannot be read becomes one error that names the line."""
    try:
        yield
    except MISREAD as error:
        raise misread(error, line, text) from error


def misread(error: BaseException, line: int, text: str) -> UnsupportedError:
    """The error that says which line is not understood."""
    if isinstance(error, RecursionError):
        return UnsupportedError(f"line {line}: nested too deeply")
    shown = " ".join(text[:200].split())[:60]
    return UnsupportedError(f"line {line}: not understood: {shown}")


def most(count: int, limit: int, line: int, what: str) -> None:
    """Refuses more of something than is read."""
    if count > limit:
        raise UnsupportedError(f"line {line}: more than {limit} {what}; no more are read")
