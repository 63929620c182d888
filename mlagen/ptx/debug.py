"""Debug positions: the tables of files and names, and what each `.loc` says."""

from __future__ import annotations

import re

from mlagen.ptx.operands import NAME
from mlagen.ptx.syntax import Location

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d{1,9})[ \t]+"([^"\n]*)"(?:[ \t]+"([^"\n]*)")?', re.M)
_STRINGS = re.compile(r"\.section\s+\.debug_str\s*\{([^{}]*+)\}")
_STRING = re.compile(rf"(?<![\w$%])({NAME})\s*:|\.b8\s+([\d\s,]++)")
_BYTE = re.compile(r"\d++")
_LOC = re.compile(
    rf"\.loc\s+(\d{{1,9}})\s+(\d{{1,9}})\s+(\d{{1,9}})"
    rf"(?:\s*,\s*function_name\s+({NAME})(?:\s*\+\s*(\d{{1,9}}))?"
    rf"\s*,\s*inlined_at\s+(\d{{1,9}})\s+(\d{{1,9}})\s+(\d{{1,9}}))?"
)
_LONGEST = 1_000  # bytes of a name
_CALLS = 50  # of inlined functions in each other; what is further out is cut off


class Debug:
    """The tables of a text whose comments are blank."""

    def __init__(self, text: str) -> None:
        self._files = {int(n): f"{a}/{b}" if b else a for n, a, b in _FILE.findall(text)}
        self._texts: dict[str, tuple[bytes, int]] = {}  # label -> its section, its place in it
        for section in _STRINGS.finditer(text):
            self._read_strings(section.group(1))

    def _read_strings(self, text: str) -> None:
        held = bytearray()
        labels: dict[str, int] = {}
        for match in _STRING.finditer(text):
            if match.group(1):
                labels[match.group(1)] = len(held)
            else:
                held += bytes(int(n[-3:]) & 0xFF for n in _BYTE.findall(match.group(2)))
        whole = bytes(held)
        self._texts.update((name, (whole, at)) for name, at in labels.items())

    def file(self, number: str) -> str:
        """The name of a numbered file, "" where the text has none."""
        return self._files.get(int(number), "")

    def string(self, label: str, offset: int) -> str:
        """The name at a label; the label itself where the text does not say."""
        section, at = self._texts.get(label, (b"", 0))
        found = section[at + offset : at + offset + _LONGEST].partition(b"\0")[0]
        return found.decode("utf-8", "replace") or label


class Locations:
    """The `.loc` lines of one body, in their order."""

    def __init__(self, debug: Debug) -> None:
        self._debug = debug
        self._seen: dict[tuple[str, ...], tuple[Location, int]] = {}  # place -> latest, its depth

    def read(self, text: str) -> Location | None:
        """What a line says; None where it is no `.loc` or has no position (line 0).

        A compiler writes the place of a call before the places that were inlined there: a call
        that was inlined itself is known by the latest `.loc` of its place."""
        match = _LOC.match(text)
        if not match or match.group(2).strip("0") == "":
            return None
        file, line, column, label, offset, *call = match.groups()
        outer, depth = None, 0
        if label:
            outer, depth = self._seen.get(tuple(call), (self._plain(*call), 0))
            if depth >= _CALLS:
                outer, depth = self._plain(*call), 0
        name = self._debug.string(label, int(offset or 0)) if label else ""
        found = Location(self._debug.file(file), int(line), int(column), outer, name)
        self._seen[file, line, column] = found, depth + 1
        return found

    def _plain(self, file: str, line: str, column: str) -> Location:
        return Location(self._debug.file(file), int(line), int(column))
