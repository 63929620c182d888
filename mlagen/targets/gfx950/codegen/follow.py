"""Which pieces a wave passes: the printed branches, followed for a number of tiles.

Everything else in the generator relies on `Layout.paths`. This module executes the printed control
flow, its compares, counters and branches, so it finds a loop that runs once too often.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mlagen.targets.gfx950.codegen.program import (
    Layout,
    Piece,
    ProgramInstruction,
    RoleStream,
    Segment,
)
from mlagen.targets.gfx950.dsl import Role

STEPS = 100_000  # branches and compares of one run; the longest that is followed takes some hundred
WORD = 1 << 32  # scalar registers wrap around
_NAMED = re.compile(r"s\[(\w+)\]")
_COMPARES = {
    "s_cmp_eq_u32": lambda a, b: a == b,
    "s_cmp_ge_u32": lambda a, b: a >= b,
    "s_cmp_lt_u32": lambda a, b: a < b,
}
_SUMS = {"s_add_u32": 1, "s_sub_u32": -1}
_PASSED = ("s_barrier", "s_setprio", "s_nop", "s_waitcnt")


class Lost(Exception):
    """The control flow cannot be followed: it says what was met where."""


class Follower:
    """The control flow of one stream."""

    def __init__(self, layout: Layout, stream: RoleStream) -> None:
        self.segments = [x for x in layout.segments if x.role in ("", stream.role)]
        self.at = {segment.label: index for index, segment in enumerate(self.segments)}

    def pieces(self, role: Role, tiles: int, items: int = 1) -> list[Piece]:
        """The pieces that a wave of `role` passes: of `tiles` tiles, or of `items` work items that
        have so many each. Raises Lost."""
        return list(self._run(role, tiles, items))

    def _run(self, role: Role, tiles: int, items: int) -> Iterator[Piece]:
        values = {"N": tiles, "ITEMS": items, "WAVE": role.waves.start}
        index, budget = 0, STEPS
        while index < len(self.segments):
            segment = self.segments[index]
            target = self._code(segment, segment.head, values)
            if target is None:
                yield from segment.pieces
                target = self._code(segment, segment.tail, values)
            if target == "":
                return
            budget -= 1
            if not budget:
                raise Lost(f"the control flow does not end, at {segment.label}")
            if target is not None and target not in self.at:
                raise Lost(f"{segment.label} branches to {target}, which is no segment")
            index = self.at[target] if target is not None else index + 1
        raise Lost(f"the control flow runs out of the program after {self.segments[-1].label}")

    @staticmethod
    def _code(
        segment: Segment, code: Iterable[ProgramInstruction], values: dict[str, int]
    ) -> str | None:
        """Where the code branches to: a segment's label, "" at the end of the program, None where
        it falls through."""
        skipped = ""  # a label of this code that is branched to
        flag: bool | None = None
        for x in code:
            if skipped:
                skipped = "" if x.pipe == "label" and x.target == skipped else skipped
                continue
            name, _, rest = x.text.strip().partition(" ")
            operands = [operand.strip() for operand in rest.split(",")]
            if x.pipe == "label" or name in _PASSED:
                continue
            if name in _COMPARES:
                flag = _COMPARES[name](*(_value(segment, o, values) for o in operands))
            elif name in _SUMS:
                a, b = (_value(segment, o, values) for o in operands[1:])
                values[_register(segment, operands[0])] = (a + _SUMS[name] * b) % WORD
            elif name == "s_mov_b32":
                values[_register(segment, operands[0])] = _value(segment, operands[1], values)
            elif name == "s_endpgm":
                return ""
            elif name in ("s_branch", "s_cbranch_scc0", "s_cbranch_scc1"):
                if name != "s_branch" and flag is None:
                    raise Lost(f"{segment.label}: {x.text.strip()} without a compare before it")
                if name == "s_branch" or flag == name.endswith("1"):
                    if not any(y.pipe == "label" and y.target == x.target for y in code):
                        return x.target
                    skipped = x.target
            elif "WAVE" not in x.text:  # the entry works out the wave's number, which is given
                raise Lost(f"{segment.label}: {x.text.strip()} is no control flow that is followed")
        return None


def _register(segment: Segment, operand: str) -> str:
    match = _NAMED.fullmatch(operand)
    if match is None:
        raise Lost(f"{segment.label}: {operand} is no named scalar register")
    return match[1]


def _value(segment: Segment, operand: str, values: dict[str, int]) -> int:
    match = _NAMED.fullmatch(operand)
    if match is None:
        return int(operand, 0)
    if match[1] not in values:
        raise Lost(f"{segment.label}: {operand} is read before it is set")
    return values[match[1]]
