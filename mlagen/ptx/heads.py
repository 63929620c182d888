"""Heads of functions: name, parameters, and what is said of a launch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mlagen.errors import UnsupportedError
from mlagen.ptx.declarations import parameter
from mlagen.ptx.operands import NAME, split
from mlagen.ptx.positions import Positions, located
from mlagen.ptx.syntax import Parameter
from mlagen.targets.sm_90a.limits import SM_90A

THREADS = SM_90A.max_block_threads
_NAME = re.compile(rf"\s*({NAME})\s*")
_ATTRIBUTE = re.compile(r"\s*\.attribute\s*(?=\()")
_SAID = re.compile(
    r"\s*\.(?:(reqntid|maxntid|reqnctapercluster)\s+(\d+(?:\s*,\s*\d+)*)"
    r"|(maxnreg|minnctapersm|maxnctapersm|maxclusterrank|abi_preserve|abi_preserve_control)\s+(\d+)"
    r"|(explicitcluster|blocksareclusters|noreturn)\b"
    r"|(pragma)\s[^;]*;)"
)
_DIGITS = 40  # of a number that is told in full


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a body."""

    name: str
    line: int
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    said: dict[str, tuple[int, ...]]  # by directive; () for one without numbers

    def number(self, directive: str) -> int:
        """What a directive says; 0 where it does not stand there."""
        return self.said.get(directive, (0,))[0]


def read_head(positions: Positions, at: int, end: int, line: int) -> Head:
    """The head from behind `.entry` or `.func` to the brace at `end`."""
    text = positions.text
    if attribute := _ATTRIBUTE.match(text, at, end):
        at = positions.close(attribute.end()) + 1
    at, results = _parameters(positions, at, end)
    name = _NAME.match(text, at, end)
    if not name:
        raise UnsupportedError(f"line {line}: a function without a name")
    at, given = _parameters(positions, name.end(), end)
    said: dict[str, tuple[int, ...]] = {}
    while match := _SAID.match(text, at, end):
        several, numbers, one, number, alone, pragma = match.groups()
        said[several or one or alone or pragma] = tuple(
            _number(n, line) for n in re.findall(r"\d+", numbers or number or "")
        )
        at = match.end()
    if rest := text[at:end].strip():
        shown = " ".join(rest[:200].split())[:60]
        raise UnsupportedError(f"line {line}: not understood: {shown}")
    for directive in ("reqntid", "maxntid"):
        _block(said.get(directive, ()), line)
    cluster = said.get("reqnctapercluster", ())
    if len(cluster) > 3 or not all(cluster) or math.prod(cluster) > THREADS:
        raise UnsupportedError(f"line {line}: a cluster of {'x'.join(map(str, cluster[:4])):.60}")
    return Head(name.group(1), line, results, given, said)


def _parameters(positions: Positions, at: int, end: int) -> tuple[int, tuple[Parameter, ...]]:
    """Where a list of parameters ends, and what it holds; nothing where none stands at `at`."""
    text = positions.text
    while at < end and text[at].isspace():
        at += 1
    if at >= end or text[at] != "(":
        return at, ()
    close = positions.close(at)
    found = []
    start = at + 1
    inner = text[start:close]
    if inner.strip():
        for part in split(inner):
            # Parts stand in their order, each where it is found next.
            start = text.index(part, start)
            line = positions.line(start)
            with located(line, part):
                found.append(parameter(part, line))
            start += len(part)
    return close + 1, tuple(found)


def _number(text: str, line: int) -> int:
    if len(text) > _DIGITS:
        raise UnsupportedError(f"line {line}: {text[:20]}… in a directive of a launch")
    return int(text)


def _block(block: tuple[int, ...], line: int) -> None:
    """Refuses a block that no launch has."""
    whole = len(block) <= 3 and all(1 <= extent <= THREADS for extent in block)
    if whole and math.prod(block) <= THREADS:
        return
    shown = " x ".join(map(str, block[:3])) + (" x …" if len(block) > 3 else "")
    raise UnsupportedError(
        f"line {line}: a block of {shown:.60} threads; it has 1 to {THREADS}, in up to 3 dimensions"
    )
