"""Which registers hold a value that is still needed, instruction by instruction.

Sets of registers are integers with one bit each: vector register n is bit n (physical numbers,
accumulators from `accum_offset` on), scalar register n is bit 512 + n. A write counts for all
lanes, whatever EXEC says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlagen.binary.effects import RegisterAccess, effects
from mlagen.binary.flow import Flow
from mlagen.targets.gfx950.limits import GFX950

SCALAR = GFX950.vgprs_per_simd_lane  # bit of s0
ADDRESSABLE = GFX950.sgprs_per_wave


@dataclass(frozen=True)
class Liveness:
    """Bit sets by instruction index: needed after it, read and written by it."""

    after: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    roles: dict[int, frozenset[str]]  # register bit -> how effects says it is used, "r:" or "w:"

    def peak(self, *, scalar: bool) -> int:
        """The most vector (or scalar) registers that hold a needed value at one time."""
        mask = ((1 << SCALAR + ADDRESSABLE) - (1 << SCALAR)) if scalar else (1 << SCALAR) - 1
        return max(
            ((after | written) & mask).bit_count()
            for after, written in zip(self.after, self.writes, strict=True)
        )

    def alive(self, indices: Sequence[int]) -> int:
        """Registers that hold a needed value somewhere in a run of instructions."""
        held = 0
        for index in indices:
            before = self.after[index] & ~self.writes[index] | self.reads[index]
            held |= self.after[index] | before | self.writes[index]
        return held


def read_liveness(flow: Flow, accum_offset: int) -> Liveness:
    """Backward data flow over the whole kernel."""
    reads, writes = [], []
    roles: dict[int, set[str]] = {}
    for ins in flow.instructions:
        found = effects(ins, accum_offset)
        reads.append(_bits(found.reads))
        writes.append(_bits(found.writes))
        for way, accesses in (("r", found.reads), ("w", found.writes)):
            for access in accesses:
                for bit in _numbers(access):
                    roles.setdefault(bit, set()).add(f"{way}:{access.role}")
    needed = [0] * len(flow.blocks)  # at each block's start
    after = [0] * len(flow.instructions)
    changed = True
    while changed:
        changed = False
        for at in reversed(flow.order):
            block = flow.blocks[at]
            live = 0
            for following in block.successors:
                live |= needed[following]
            for index in range(block.last, block.first - 1, -1):
                after[index] = live
                live = live & ~writes[index] | reads[index]
            if live != needed[at]:
                needed[at] = live
                changed = True
    kept = {bit: frozenset(names) for bit, names in roles.items()}
    return Liveness(tuple(after), tuple(reads), tuple(writes), kept)


def _numbers(access: RegisterAccess) -> Iterator[int]:
    for number in range(access.base, access.base + access.count):
        if access.file == "v":
            yield number
        elif number < ADDRESSABLE:
            yield SCALAR + number


def _bits(accesses: Sequence[RegisterAccess]) -> int:
    held = 0
    for access in accesses:
        for bit in _numbers(access):
            held |= 1 << bit
    return held
