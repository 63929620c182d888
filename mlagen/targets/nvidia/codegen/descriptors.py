"""Checks that matrix products find their operands: what a descriptor names in shared memory begins
where the pattern of its swizzle does.

A swizzle of 128, 64 or 32 bytes moves 16-byte chunks by bits of their address, and repeats after 8
rows. A descriptor without a base offset says that its matrix begins with the pattern (PTX ISA,
matrix descriptor, base offset); a step of K begins inside the first row. Addresses are read from
the printed lines, which make them of the base of shared memory, numbers and multiples of slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.emit import Emitter
from mlagen.targets.nvidia.codegen.extents import (
    LANE,
    SmemRows,
    TmemColumns,
    beyond_columns,
    beyond_rows,
    touches,
)
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.dsl import PipelineSchedule
from mlagen.targets.nvidia.dsl.smem import SWIZZLE_ALIGN, Exchange, Scratch, TmaTile
from mlagen.targets.nvidia.limits import Nvidia

BASES = ("%smem", "%tmem")  # which no operation writes
UNIT = 16  # bytes that a descriptor's address counts
_ADDRESS = (1 << 14) - 1  # its bits
# Bytes of a swizzle by a descriptor's upper bits: of wgmma, and of tcgen05 (PTX ISA).
_WGMMA = {1: 128, 2: 64, 3: 32}
_TCGEN05 = {2: 128, 4: 64, 6: 32}
_LINE = re.compile(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(.*);")
_REGISTER = re.compile(r"%\w+$")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)$")
_PLACE = re.compile(r"\[\s*(%\w+)\s*(?:\+\s*(\w+)\s*)?\]$")
_PART = re.compile(r"\s*((?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+)(?:,|$)")

Block = TmaTile | Exchange | Scratch


@dataclass(frozen=True, slots=True)
class _Sum:
    """`at`, and a multiple of `step` that is not known, of bytes or of UNIT; 0: no more than `at`.
    `bits`: those above the address."""

    at: int
    step: int = 0
    bits: int = 0

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.at + other.at, gcd(self.step, other.step), self.bits | other.bits)

    def times(self, factor: int) -> _Sum:
        return _Sum(self.at * factor, self.step * factor)

    def shifted(self, right: int) -> _Sum | None:
        size = 1 << right
        return None if self.step % size else _Sum(self.at // size, self.step // size)


def check_descriptors(
    schedule: PipelineSchedule, loops: Sequence[Loop], emitter: Emitter
) -> tuple[str, ...]:
    """Products that read a place where their swizzle does not begin, each told once."""
    roles = _roles(loops)
    found: dict[tuple[int, str], str] = {}
    for op, opcode, operands, sums in _followed(emitter):
        for register, widths, shift in _descriptors(opcode, operands):
            if register not in sums:
                continue
            made = sums[register]
            width = widths.get(made.bits >> shift, 0)
            wrong = _misplaced(schedule, made, width) if width else None
            if wrong is not None and (id(op), wrong.name) not in found:
                found[id(op), wrong.name] = _told(schedule, op, roles.get(id(op), ""), wrong, width)
    return tuple(found.values())


def check_extents(
    schedule: PipelineSchedule, loops: Sequence[Loop], emitter: Emitter
) -> tuple[str, ...]:
    """Operations whose instructions touch more than what they say that they use and define, of
    operands of products and of tensor memory; each told once."""
    roles, found = _roles(loops), dict[str, None]()
    for op, opcode, operands, sums in _followed(emitter):
        for touched in touches(opcode, operands):
            if said := _beyond(schedule, op, touched, sums):
                where = f"{schedule.file}:{op.line} {op} of role {roles.get(id(op), '')}"
                found[f"error[extent] {where} {said}"] = None
    return tuple(found)


def _roles(loops: Sequence[Loop]) -> dict[int, str]:
    """The role of each operation, by its id."""
    return {id(op): loop.stream.role.name for loop in loops for op in _operations(loop)}


def _followed(
    emitter: Emitter,
) -> Iterator[tuple[Operation, str, tuple[str, ...], dict[str, _Sum]]]:
    """Each instruction of an operation, with what is known of registers before it."""
    sums: dict[str, _Sum] = {"%smem": _Sum(0, SWIZZLE_ALIGN), "%tmem": _Sum(0, LANE)}
    for line in emitter.lines:
        opcode, operands = _parsed(line.text)
        if not operands:
            continue
        if line.printed is not None:
            yield line.printed.op, opcode, operands, sums
        _execute(opcode, operands, sums)


@lru_cache(maxsize=16384)
def _parsed(text: str) -> tuple[str, tuple[str, ...]]:
    """An instruction's opcode and operands; none for any other line."""
    match = _LINE.match(text.partition("//")[0].strip())
    if match is None:
        return "", ()
    return match[1], tuple(part.strip() for part in _PART.findall(match[2]))


def _operations(loop: Loop) -> Iterator[Operation]:
    yield from loop.prologue
    yield from loop.stream.items
    yield from loop.cluster.operations()
    yield from loop.epilogue


def _descriptors(
    opcode: str, operands: Sequence[str]
) -> Iterator[tuple[str, Mapping[int, int], int]]:
    """The registers that an instruction takes for matrix descriptors, and how their bits tell the
    swizzle."""
    if opcode.startswith("wgmma.mma_async"):
        places, widths, shift = operands[1:3], _WGMMA, 62
    elif opcode.startswith(("tcgen05.mma", "tcgen05.cp")):
        places, widths, shift = operands[1 : 3 if "mma" in opcode else 2], _TCGEN05, 61
    else:
        return
    for operand in places:
        if _REGISTER.match(operand):
            yield operand, widths, shift


def _beyond(
    schedule: PipelineSchedule,
    op: Operation,
    touched: SmemRows | TmemColumns,
    sums: Mapping[str, _Sum],
) -> str:
    """What is wrong with what an instruction touches, "" where its place is not known."""
    if isinstance(touched, TmemColumns):
        at = _address(touched.operand, sums)
        if at is None or at.step % LANE:
            return ""
        return beyond_columns(schedule, op, at.at % LANE, touched.count)
    made = sums.get(touched.operand)
    if made is None or not made.bits:
        return ""
    wgmma = made.bits >> 62 in _WGMMA and not made.bits >> 46 & 1
    width = (_WGMMA.get(made.bits >> 62) if wgmma else _TCGEN05.get(made.bits >> 61)) or 0
    stride = UNIT * (made.bits >> 32 & _ADDRESS)
    if not width or made.step % (Nvidia.swizzle_align(width) // UNIT):
        return ""
    return beyond_rows(schedule, op, UNIT * made.at, stride, width, touched.count)


def _address(operand: str, sums: Mapping[str, _Sum]) -> _Sum | None:
    """`[%register + number]`."""
    match = _PLACE.match(operand)
    made = sums.get(match[1]) if match else None
    return None if match is None or made is None else made.plus(_Sum(int(match[2] or "0", 0)))


def _misplaced(schedule: PipelineSchedule, made: _Sum, width: int) -> Block | None:
    """What a descriptor reads, where it does not begin with its swizzle's pattern."""
    pattern, place = Nvidia.swizzle_align(width), UNIT * made.at
    known = gcd(UNIT * made.step, pattern)
    smem = schedule.smem
    blocks: list[Block] = [
        *smem.tiles.values(), *smem.exchanges.values(), *smem.scratches.values()
    ]  # fmt: skip
    inside = [b for b in blocks if b.base <= place < b.base + _size(b)]
    # A step below a row is one of K, taken by a number that is not known here.
    off = known >= width and (known < pattern or place % pattern >= width)
    # What lies in place of tiles is named last, and is what the product reads.
    return next((b for b in reversed(inside) if off or b.base % pattern), None)


def _size(block: Block) -> int:
    return block.bytes * block.slots if isinstance(block, TmaTile) else block.bytes


def _told(schedule: PipelineSchedule, op: Operation, role: str, block: Block, width: int) -> str:
    pattern = Nvidia.swizzle_align(width)
    fits = -(-block.base // pattern) * pattern
    what = (
        f"`align={pattern}` in the room's declaration puts it at {fits}"
        if isinstance(block, Scratch)
        else f"{fits} is one"
    )
    return (
        f"error[operand-alignment] {schedule.file}:{op.line} {op} of role {role} reads "
        f"{block.name!r} at byte {block.base} of shared memory through a matrix descriptor: its "
        f"{width}-byte swizzle repeats every {pattern} bytes, so the operand has to begin at a "
        f"multiple of {pattern}; {what}"
    )


def _execute(opcode: str, operands: Sequence[str], sums: dict[str, _Sum]) -> None:
    """What a line leaves in its first operand; nothing is known of what is not followed here."""
    if not _REGISTER.match(operands[0]) or operands[0] in BASES:
        return
    target, name = operands[0], opcode.partition(".")[0]
    args = [_value(operand, sums) for operand in operands[1:]]
    made = None
    if args and all(arg is not None for arg in args):
        made = _result(name, [arg for arg in args if arg is not None])
    elif name in ("mul", "mad") and len(args) > 1:
        made = _scaled(args)
    elif name == "shl" and args and args[-1] is not None and not args[-1].step:
        made = _Sum(0, 1 << args[-1].at)  # of something unknown
    if made is None:
        sums.pop(target, None)
    else:
        sums[target] = made


def _value(operand: str, sums: Mapping[str, _Sum]) -> _Sum | None:
    if _NUMBER.match(operand):
        number = int(operand, 0)
        return _Sum(number & _ADDRESS, 0, number & ~_ADDRESS) if number >> 32 else _Sum(number)
    return sums.get(operand)


def _scaled(args: Sequence[_Sum | None]) -> _Sum | None:
    """A product of a number and something unknown, and what is added to it."""
    factors = [arg for arg in args[:2] if arg is not None and not arg.step]
    more = args[2] if len(args) > 2 else _Sum(0)
    if len(factors) != 1 or more is None:
        return None
    return _Sum(0, factors[0].at).plus(more)


def _result(name: str, args: Sequence[_Sum]) -> _Sum | None:
    first, second = args[0], args[1] if len(args) > 1 else _Sum(0)
    if name in ("mov", "cvt"):
        return first
    if name in ("add", "or"):
        return first.plus(second)
    if name == "shl" and not second.step:
        return first.times(1 << second.at)
    if name in ("shr", "bfe") and not second.step:
        return first.shifted(second.at)
    if name in ("mul", "mad"):
        plain, factor = (first, second) if not second.step else (second, first)
        if factor.step:
            return None
        made = plain.times(factor.at)
        return made.plus(args[2]) if len(args) > 2 else made
    return None
