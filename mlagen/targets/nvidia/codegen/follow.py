"""Executes the control flow of a role as it is printed: branches, compares and counters.

Everything else in the generator relies on `runs.walk`. This module follows the printed lines, so it
finds a loop that runs once too often, and a slot or a phase that is not that of the tile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mlagen.targets.nvidia.codegen.emit import Emitter, Printed

STEPS = 200_000  # of one run; the longest that is followed takes some ten thousand
WORD = 1 << 32
EXITS = ("EXIT", "LEAVE")

_LABEL = re.compile(r"(\w+):$")
_GUARD = re.compile(r"@(!?)(%\w+)\s+(.*)$")
_IGNORED = ("{", "}", ".", "setmaxnreg.", "//", "barrier.cluster.arrive.")
_COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__,
    "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip
_SUMS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__, "sub": int.__sub__, "rem": int.__mod__, "xor": int.__xor__,
}  # fmt: skip


class Lost(Exception):
    """The control flow cannot be followed; the text says where and why."""


@dataclass(frozen=True, slots=True)
class GroupWait:
    """At most `stay` matrix groups stay in flight."""

    stay: int


@dataclass(frozen=True, slots=True)
class Gathering:
    """A barrier of all warps of the block."""


@dataclass(frozen=True, slots=True)
class _Code:
    """One line of control flow: a branch where `target` is given, else `name` of `kind` writes."""

    text: str
    name: str
    operands: tuple[str, ...]
    guard: str = ""
    negated: bool = False
    signed: bool = False
    target: str = ""


Passed = Printed | GroupWait | Gathering
Line = _Code | Printed | GroupWait | Gathering


@dataclass
class Follower:
    """The streams that an emitter printed."""

    lines: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, emitter: Emitter) -> Follower:
        made = cls()
        last: Printed | None = None
        for index, line in enumerate(emitter.lines):
            for silent in emitter.silent.get(index, ()):
                made.lines.append(silent)
            if line.printed is not None:
                if line.printed is not last:
                    made.lines.append(line.printed)
                last = line.printed
                continue
            last = None
            made._read(line.text.strip())
        for silent in emitter.silent.get(len(emitter.lines), ()):
            made.lines.append(silent)
        return made

    def _read(self, text: str) -> None:
        if not text or text.startswith(_IGNORED):
            return
        if (label := _LABEL.match(text)) is not None:
            self.labels[label[1]] = len(self.lines)
            return
        guard = _GUARD.match(text)
        negated, register, body = (
            (bool(guard[1]), guard[2], guard[3]) if guard else (False, "", text)
        )
        name, _, rest = body.rstrip(";").partition(" ")
        operands = tuple(operand.strip() for operand in rest.split(",")) if rest else ()
        if name == "wgmma.wait_group.sync.aligned":
            self.lines.append(GroupWait(int(operands[0])))
        elif body == "bar.sync 0;":
            self.lines.append(Gathering())
        elif name == "bra":
            self.lines.append(_Code(text, name, (), register, negated, target=operands[0]))
        else:
            signed = name.endswith(".s32")
            self.lines.append(_Code(text, name, operands, register, negated, signed))

    def run(self, label: str, values: dict[str, int]) -> Iterator[Passed]:
        """What is passed from `label` on until the block ends. `values`: of registers; whoever
        takes an operation from here changes those that it sets. Raises Lost."""
        at, left = self._at(label), STEPS
        while True:
            if at >= len(self.lines):
                raise Lost("the control flow runs out of the program")
            line = self.lines[at]
            at += 1
            if not isinstance(line, _Code):
                yield line
                continue
            left -= 1
            if not left:
                raise Lost(f"the control flow does not end, at `{line.text}`")
            if line.guard and bool(_value(line, line.guard, values)) == line.negated:
                continue
            if line.target in EXITS:
                return
            if line.target:
                at = self._at(line.target)
            else:
                _execute(line, values)

    def _at(self, label: str) -> int:
        if label not in self.labels:
            raise Lost(f"there is no label {label}")
        return self.labels[label]


def value_of(operand: str, values: Mapping[str, int]) -> int | None:
    """A number, or what a register holds."""
    return int(operand) if not operand.startswith("%") else values.get(operand)


def _value(line: _Code, operand: str, values: Mapping[str, int]) -> int:
    found = value_of(operand, values)
    if found is None:
        raise Lost(f"`{line.text}` reads {operand} before it is set")
    return found


def _execute(line: _Code, values: dict[str, int]) -> None:
    name, *kinds = line.name.split(".")
    if not line.operands:
        raise Lost(f"`{line.text}` is no control flow that is followed")
    target, sources = line.operands[0], line.operands[1:]
    taken = [_value(line, operand, values) for operand in sources]
    if name == "mov":
        values[target] = taken[0]
    elif name in _SUMS:
        values[target] = _SUMS[name](*taken) % WORD
    elif name == "selp":
        values[target] = taken[0] if taken[2] else taken[1]
    elif name == "setp" and kinds[0] in _COMPARES:
        a, b = (_signed(x) if line.signed else x % WORD for x in taken)
        values[target] = int(_COMPARES[kinds[0]](a, b))
    else:
        raise Lost(f"`{line.text}` is no control flow that is followed")


def _signed(word: int) -> int:
    return (word + WORD // 2) % WORD - WORD // 2
