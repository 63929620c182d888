"""The statements of a body: registers' scopes, labels, instructions and their operands."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace

from mlagen.errors import UnsupportedError
from mlagen.ptx.declarations import LINE_DIRECTIVE, NAME, VARIABLES, variables
from mlagen.ptx.positions import Positions, located, most
from mlagen.ptx.syntax import Guard, Instruction, Memory, Operand, Variable, Vector

_LABEL = re.compile(rf"({NAME})\s*:(?!:)")
_DECLARED = re.compile(rf"({NAME})\s*(?:<(\d+)>)?")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?$")
_REAL = re.compile(
    r"[+-]?(0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|(?:\d*+\.)?\d++(?:[eE][+-]?\d++)?)$"
)
_OPCODE = re.compile(r"[a-z](?:[\w.]|::)*+$")
_DEPTH = 100  # of `{` in each other
_OPERAND_DEPTH = 4  # a matrix in an address is 2


@dataclass(slots=True)
class _Scope:
    """A `{ … }` of a body. Registers and labels of inner scopes get its number."""

    number: int
    parent: _Scope | None
    names: set[str] = field(default_factory=set)
    ranges: set[str] = field(default_factory=set)
    labels: dict[str, int] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """The name as an entry's instructions have it."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names or name.rstrip("0123456789") in scope.ranges:
                return f"{name}@{scope.number}" if scope.parent else name
            scope = scope.parent
        return name

    def label(self, name: str) -> int | None:
        """The instruction index of a label that can be seen from here."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


class Body:
    """The statements of one entry."""

    def __init__(self, positions: Positions, start: int, end: int, room: int) -> None:
        self.positions, self._room = positions, room
        self.variables: list[Variable] = []
        self._made: list[tuple[Instruction, _Scope]] = []  # branches without their target
        self._scope = _Scope(0, None)
        self._scopes = 1
        self._read(start, end)

    def _read(self, at: int, end: int) -> None:
        text = self.positions.text
        blank = re.compile(r"\s*")
        depth = 0
        while True:
            space = blank.match(text, at)
            at = space.end() if space else at
            if at >= end:
                return
            if text[at] == "{":
                self._scope = _Scope(self._scopes, self._scope)
                self._scopes += 1
                depth += 1
                if depth > _DEPTH:
                    raise RecursionError
                at += 1
            elif text[at] == "}":
                self._scope = self._scope.parent or self._scope
                depth -= 1
                at += 1
            elif text[at] == ";":
                at += 1
            elif line := LINE_DIRECTIVE.match(text, at):
                at = line.end()
            elif label := _LABEL.match(text, at):
                self._scope.labels[label.group(1)] = len(self._made)
                at = label.end()
            else:
                stop, number = self.positions.statement_end(at), self.positions.line(at)
                with located(number, text[at:stop]):
                    self._statement(text[at:stop], (at, stop + 1), number)
                at = stop + 1

    def _statement(self, statement: str, span: tuple[int, int], line: int) -> None:
        if statement.startswith(".reg"):
            for name, count in _DECLARED.findall(re.sub(r"^\.reg(\s*\.\w+)+", "", statement)):
                (self._scope.ranges if count else self._scope.names).add(name)
            return
        if statement.startswith("."):
            self.variables += variables(statement, line)
            most(len(self.variables), VARIABLES, line, "variables")
            return
        text = " ".join(statement.split())
        guard = None
        rest = text
        if match := re.match(rf"@\s*(!?)\s*({NAME})\s*", text):
            guard = Guard(self._scope.unique(match.group(2)), bool(match.group(1)))
            rest = text[match.end() :]
        opcode, _, tail = rest.partition(" ")
        most(len(self._made) + 1, self._room, line, "instructions")
        if not _OPCODE.match(opcode):
            raise UnsupportedError(f"line {line}: not an instruction: {text[:60]}")
        operands = tuple(self._operand(part, line) for part in _split(tail) if part)
        made = Instruction(
            len(self._made), line, text + ";", opcode, tuple(opcode.split(".")), operands, guard,
            -1, span,
        )  # fmt: skip
        self._made.append((made, self._scope))

    def _operand(self, text: str, line: int, depth: int = 0) -> Operand:
        text = text.strip()
        if depth > _OPERAND_DEPTH:
            raise RecursionError
        if text.startswith(("{", "(")):
            return Vector(tuple(self._operand(x, line, depth + 1) for x in _split(text[1:-1]) if x))
        if text.startswith("["):
            inner = _split(text[1:-1])
            base, offset = self._address(inner[0].strip())
            more = tuple(self._operand(item, line, depth + 1) for item in inner[1:])
            flat = tuple(
                x for item in more for x in (item.items if isinstance(item, Vector) else (item,))
            )
            return Memory(base, offset, flat)
        if _NUMBER.match(text):
            return (
                int(text.rstrip("uU").lstrip("+"), 0)
                if not _octal(text)
                else int(text.rstrip("uU"), 8)
            )
        if _REAL.match(text):
            return _real(text)
        if "|" in text:
            return Vector(tuple(self._operand(item, line, depth + 1) for item in text.split("|")))
        negative = text.startswith("!")
        name = self._scope.unique(text.lstrip("!-").strip())
        return f"!{name}" if negative else name

    def _address(self, text: str) -> tuple[str, int]:
        match = re.match(rf"({NAME}(?:\.\w+)?)?\s*(?:([+-])\s*(-?\w+))?$", text)
        if not match:
            return ("", int(text.rstrip("uU"), 0)) if _NUMBER.match(text) else (text, 0)
        name, sign, offset = match.groups()
        value = int((offset or "0").rstrip("uU"), 0)
        return self._scope.unique(name or ""), -value if sign == "-" else value

    def finish(self) -> tuple[Instruction, ...]:
        """All instructions, branches resolved."""
        return tuple(_resolved(made, scope) for made, scope in self._made)


def _resolved(made: Instruction, scope: _Scope) -> Instruction:
    if made.name != "bra" or not made.operands or not isinstance(made.operands[0], str):
        return made
    target = scope.label(made.operands[0].partition("@")[0])
    if target is None:
        raise UnsupportedError(f"line {made.line}: no label for {made.text}")
    return replace(made, target=target)


def _octal(text: str) -> bool:
    return bool(re.match(r"[+-]?0[0-7]+[uU]?$", text))


def _real(text: str) -> float:
    if text[:2].lower() == "0f":
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if text[:2].lower() == "0d":
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    return float(text)


def _split(text: str) -> list[str]:
    """Comma-separated operands; commas inside brackets do not split."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts
