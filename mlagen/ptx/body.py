"""The statements of a body: registers' scopes, labels, instructions and their operands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mlagen.errors import UnsupportedError
from mlagen.ptx.debug import Debug, Locations
from mlagen.ptx.declarations import LINE_DIRECTIVE, REGISTERS, VARIABLES, registers, variables
from mlagen.ptx.operands import NAME, operand, split
from mlagen.ptx.positions import MISREAD, Positions, misread, most
from mlagen.ptx.scopes import RegisterType, Scope
from mlagen.ptx.syntax import Guard, Instruction, Location, Parameter, Variable

_LABEL = re.compile(rf"({NAME})\s*:(?!:)")
_GUARD = re.compile(rf"@\s*(!?)\s*({NAME})\s*")
_OPCODE = re.compile(r"([a-z](?:[\w.]|::)*+)(?=[ {(\[%]|$)")
_BLANK = re.compile(r"\s*")
_TABLE = re.compile(rf"\.(branchtargets|calltargets)\b\s*({NAME}(?:\s*,\s*{NAME})*+)$")
_PASSED_OVER = re.compile(r"\.(pragma|callprototype)\b")
_DEPTH = 100  # of `{` in each other
_TARGETS = 100_000  # of all tables that instructions go by


class Body:
    """The statements of one entry or device function. `declared` are the parameters that are
    registers, `outside` the names that the module declares."""

    def __init__(
        self,
        positions: Positions,
        span: tuple[int, int],
        room: int,
        debug: Debug,
        outside: frozenset[str] = frozenset(),
        declared: Iterable[Parameter] = (),
    ) -> None:
        self.positions, self._room = positions, room
        self.variables: list[Variable] = []
        self.registers: dict[str, str] = {}
        # Branches without their target; the scope they stand in.
        self._made: list[tuple[Instruction, Scope]] = []
        self._label = ""  # the one that stands before a table
        self._locations, self._location = Locations(debug), None
        self._scope = Scope(0, None, self.registers, outside)
        self._scopes = 1
        self._table_room = _TARGETS
        for parameter in declared:
            self._scope.declare(parameter.name, RegisterType(parameter.type), None)
        self._read(*span)

    _location: Location | None

    def _read(self, at: int, end: int) -> None:
        text = self.positions.text
        depth = 0
        while True:
            space = _BLANK.match(text, at)
            at = space.end() if space else at
            if at >= end:
                return
            char = text[at]
            if char == "{":
                self._scope = Scope(self._scopes, self._scope, self.registers, self._scope.outside)
                self._scopes += 1
                depth += 1
                if depth > _DEPTH:
                    raise RecursionError
                at += 1
            elif char == "}":
                self._scope = self._scope.parent or self._scope
                depth -= 1
                at += 1
            elif char == ";":
                at += 1
            elif char == "." and (line := LINE_DIRECTIVE.match(text, at)):
                if line.group(1) == "loc":
                    self._location = self._locations.read(line.group())
                at = line.end()
            elif char not in ".@" and (label := _LABEL.match(text, at)):
                self._put_label(label.group(1), at)
                at = label.end()
            else:
                stop, number = self.positions.statement_end(at), self.positions.line(at)
                try:
                    self._statement(text[at:stop], (at, stop + 1), number)
                except MISREAD as error:
                    raise misread(error, number, text[at:stop]) from error
                at = stop + 1

    def _put_label(self, name: str, at: int) -> None:
        if name in self._scope.labels:
            raise UnsupportedError(f"line {self.positions.line(at)}: label {name[:60]} twice")
        self._scope.labels[name] = len(self._made)
        self._label = name

    def _statement(self, statement: str, span: tuple[int, int], line: int) -> None:
        if statement[0] == ".":
            self._directive(statement, line)
            return
        text = " ".join(statement.split())
        guard, rest = None, text
        if text[0] == "@":
            match = _GUARD.match(text)
            register = self._scope.resolve(match.group(2)) if match else None
            if not match or not isinstance(register, str):
                raise ValueError("no guard")
            guard = Guard(register, bool(match.group(1)))
            rest = text[match.end() :]
        most(len(self._made) + 1, self._room, line, "instructions")
        head = _OPCODE.match(rest)
        if not head:
            raise UnsupportedError(f"line {line}: not an instruction: {text[:60]}")
        opcode, tail = head.group(), rest[head.end() :].strip()
        resolve = self._scope.resolve
        operands = tuple(operand(part, resolve) for part in split(tail)) if tail else ()
        made = Instruction(
            len(self._made), line, text + ";", opcode, tuple(opcode.split(".")), operands, guard,
            -1, span, self._location,
        )  # fmt: skip
        self._made.append((made, self._scope))

    def _directive(self, statement: str, line: int) -> None:
        if statement.startswith(".reg"):
            for name, kind, count in registers(statement):
                if count is not None and count > REGISTERS:
                    raise ValueError("a range that no register file has")
                self._scope.declare(name, kind, count)
        elif table := _TABLE.match(statement.rstrip()):
            labels = tuple(re.findall(NAME, table.group(2)))
            self._scope.tables[self._label] = labels
        elif not _PASSED_OVER.match(statement):
            self.variables += variables(statement, line, self._scope.declare_symbol)
            most(len(self.variables), VARIABLES, line, "variables")

    def __len__(self) -> int:
        return len(self._made)

    def finish(self) -> tuple[Instruction, ...]:
        """All instructions, branches resolved."""
        return tuple(
            self._resolved(made, scope) if made.parts[0] in ("bra", "brx") else made
            for made, scope in self._made
        )

    def _resolved(self, made: Instruction, scope: Scope) -> Instruction:
        if made.name == "bra":
            if len(made.operands) != 1 or not isinstance(made.operands[0], str):
                return made
            return replace(made, target=self._target(made, scope, made.operands[0]))
        name = made.operands[1] if len(made.operands) == 2 else None
        table = scope.table(name.partition("@")[0]) if isinstance(name, str) else None
        if table is None:
            raise UnsupportedError(f"line {made.line}: no table of labels for {made.text[:80]}")
        self._table_room -= len(table)
        if self._table_room < 0:
            raise UnsupportedError(f"line {made.line}: more than {_TARGETS} targets of branches")
        return replace(made, targets=tuple(self._target(made, scope, label) for label in table))

    @staticmethod
    def _target(made: Instruction, scope: Scope, name: str) -> int:
        target = scope.label(name.partition("@")[0])
        if target is None:
            raise UnsupportedError(f"line {made.line}: no label for {made.text[:80]}")
        return target
