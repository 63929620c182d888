"""A kernel's text, as mutants are made of it: instructions, their source, and what defines what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mlagen.mutation.ptx.mutant import PtxMutant, TextEdit
from mlagen.ptx import Entry, Graph, Instruction, Kind

_GUARD = re.compile(r"@!?\S+\s+")
_DEEP = 24  # instructions of a slice
FRESH = "%mlagen_mutant"  # a register's name that no text has


@dataclass(frozen=True)
class MutatedKernel:
    """An entry of a text. `places`: what a manifest says of a line, and the schedule's line."""

    text: str
    entry: Entry
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The entry's control flow, with each instruction's kind, reads and writes."""
        return Graph(self.entry)

    def each(self) -> Iterator[tuple[Instruction, Kind]]:
        """The instructions with their kinds."""
        return zip(self.entry.instructions, self.graph.kinds, strict=True)

    def source(self, instruction: Instruction) -> str:
        """An instruction as the text has it, its guard and `;` included."""
        return self.text[slice(*instruction.span)]

    def mutant(
        self, kind: str, operator: str, instruction: Instruction, text: str, excuse: str = ""
    ) -> PtxMutant:
        """`text` instead of an instruction; "" removes it."""
        return self.edited(
            kind, operator, instruction, (TextEdit(*instruction.span, text),), excuse
        )

    def edited(
        self,
        kind: str,
        operator: str,
        instruction: Instruction,
        edits: tuple[TextEdit, ...],
        excuse: str = "",
    ) -> PtxMutant:
        """A mutant that is told at an instruction."""
        place, line = self.places.get(instruction.line, ("", 0))
        after = " … ".join(" ".join(edit.text.split()) for edit in edits)
        return PtxMutant(
            kind, operator, instruction.index, instruction.line, instruction.text, after, edits,
            place, line, excuse,
        )  # fmt: skip

    def definition(self, name: str, before: int) -> int:
        """The nearest instruction before one, in the text, that writes a register; -1: none."""
        places = self._writers.get(name, ())
        return max((index for index in places if index < before), default=-1)

    @cached_property
    def _writers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, names in enumerate(self.graph.writes):
            for name in names:
                found.setdefault(name, []).append(index)
        return found

    def slice_of(self, names: Iterator[str] | list[str], before: int) -> list[int]:
        """Instructions that values of registers come from, each by the nearest definition before
        its use, through ordinary instructions alone; the last one first."""
        found: dict[int, None] = {}
        work = [(name, before) for name in names]
        while work and len(found) < _DEEP:
            name, use = work.pop(0)
            index = self.definition(name, use)
            if index < 0 or index in found:
                continue
            if self.graph.kinds[index] is not Kind.PLAIN:
                continue
            if self.entry.instructions[index].name == "ld":
                continue
            found[index] = None
            work += [(read, index) for read in self.graph.reads[index] if read.startswith("%")]
        return list(found)


def split_operands(source: str) -> list[tuple[int, int]]:
    """Places of the operands in an instruction's source: those that commas outside of brackets
    part."""
    guard = _GUARD.match(source)
    body = guard.end() if guard else 0
    opcode = re.compile(r"[\w.:]+").match(source, body)
    start = opcode.end() if opcode else body
    end = source.rindex(";") if ";" in source else len(source)
    places, depth, begin = [], 0, start
    for at in range(start, end):
        if source[at] in "{[(":
            depth += 1
        elif source[at] in "}])":
            depth -= 1
        elif source[at] == "," and not depth:
            places.append(_stripped(source, begin, at))
            begin = at + 1
    if source[begin:end].strip():
        places.append(_stripped(source, begin, end))
    return places


def _stripped(source: str, start: int, stop: int) -> tuple[int, int]:
    part = source[start:stop]
    return start + len(part) - len(part.lstrip()), stop - (len(part) - len(part.rstrip()))


def with_operand(source: str, place: tuple[int, int], text: str) -> str:
    """The source with one operand replaced."""
    return source[: place[0]] + text + source[place[1] :]


def moved_operand(source: str, place: tuple[int, int], bits: int, change: str) -> str:
    """The source with a changed copy of one operand, in a scope of its own. `change`: an
    instruction's opcode and last operand, "add 16"."""
    operand = source[slice(*place)]
    opcode, amount = change.split()
    kind = {"add": "u", "xor": "b", "or": "b"}[opcode]
    changed = with_operand(source, place, FRESH)
    made = f"{opcode}.{kind}{bits} {FRESH}, {operand}, {amount};"
    return f"{{ .reg .b{bits} {FRESH}; {made} {changed} }}"
