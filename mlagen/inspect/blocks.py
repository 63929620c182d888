"""Register blocks and the clusters they are alive in: lifted from liveness, or by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from mlagen.artifact import RegisterMap
from mlagen.binary.flow import Flow
from mlagen.inspect.lifting import Lifted
from mlagen.inspect.liveness import ADDRESSABLE, SCALAR, Liveness
from mlagen.inspect.model import RegisterBlock, Touch

# How effects names a use, and how a reader would.
_USES = (
    ("w:mfma", "accumulator"),
    ("r:mfma_ab", "matrix operand"),
    ("r:mfma_scale", "matrix scale"),
    ("w:lds", "filled from LDS"),
    ("w:vmem", "loaded"),
    ("w:smem", "loaded"),
    ("r:lds_address", "LDS address"),
    ("r:vmem_address", "memory address"),
    ("r:vmem_scalar", "memory resource"),
    ("r:lds_data", "stored to LDS"),
    ("r:vmem_data", "stored"),
    ("w:trans", "transcendental result"),
    ("r:trans", "transcendental source"),
)
_OWNER = re.compile(r"^\w+\((\w+)\b")


def touches(liveness: Liveness, runs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(alive, read, written) bit sets of each run."""
    found = []
    for first, last in runs:
        indices = range(first, last + 1)
        read = written = 0
        for index in indices:
            read |= liveness.reads[index]
            written |= liveness.writes[index]
        found.append((liveness.alive(indices), read, written))
    return found


def _touch(alive: int, read: int, written: int, mask: int) -> Touch | None:
    if read & mask:
        return "both" if written & mask else "read"
    if written & mask:
        return "write"
    return "through" if alive & mask else None


def lifted_blocks(
    flow: Flow,
    liveness: Liveness,
    runs: Sequence[tuple[int, int]],
    ids: Sequence[str],
    accum_offset: int,
) -> tuple[RegisterBlock, ...]:
    """Neighbouring registers that are touched alike in every cluster, as blocks. A register is an
    accumulator where the code calls it one."""
    accumulators = {
        accum_offset + operand.index + number
        for ins in flow.instructions
        for _, operand in ins.operands
        if operand.kind == "a"
        for number in range(operand.count)
    }
    held = touches(liveness, runs)
    result = []

    def signature(bit: int) -> tuple[tuple[str, Touch], ...]:
        mask = 1 << bit
        found = ((id, _touch(*sets, mask)) for id, sets in zip(ids, held, strict=True))
        return tuple((id, touch) for id, touch in found if touch is not None)

    def kind(bit: int) -> tuple[str, tuple[tuple[str, Touch], ...]]:
        file = "s" if bit >= SCALAR else "a" if bit in accumulators else "v"
        return file, signature(bit)

    for (file, touched), group in groupby(range(SCALAR + ADDRESSABLE), kind):
        members = list(group)
        if not touched:
            continue
        first = members[0] - {"s": SCALAR, "a": accum_offset, "v": 0}[file]
        use = _use(liveness, members)
        block = RegisterBlock("", file, first, len(members), use, touched, declared=False)
        result.append(replace(block, name=block.registers))
    return tuple(result)


def _use(liveness: Liveness, bits: Sequence[int]) -> str:
    seen = {role for bit in bits for role in liveness.roles.get(bit, ())}
    names = dict.fromkeys(name for role, name in _USES if role in seen)
    return ", ".join(list(names)[:3]) or "value"


def declared_blocks(
    lifted: Lifted,
    liveness: Liveness,
    ids: Sequence[str],
    maps: Sequence[RegisterMap],
    operations: Mapping[int, str],
    accum_offset: int,
) -> tuple[RegisterBlock, ...]:
    """The blocks of a manifest. Two blocks in the same registers are told apart by who filled them:
    `operations` (by instruction index) of a tile that is read or copied name its block."""
    result = []
    held = touches(liveness, lifted.runs)
    masks = [_mask(regs, accum_offset) for regs in maps]
    for regs, mask in zip(maps, masks, strict=True):
        rivals = [r for r, m in zip(maps, masks, strict=True) if r is not regs and m & mask]
        touched: list[tuple[str, Touch]] = []
        owned = _owned(lifted.flow, liveness, (regs, mask), rivals, operations) if rivals else None
        for id, (first, last), sets in zip(ids, lifted.runs, held, strict=True):
            if owned is None:
                touch = _touch(*sets, mask)
            else:
                mine = [index for index in range(first, last + 1) if index in owned]
                read = written = 0
                for index in mine:
                    read |= liveness.reads[index]
                    written |= liveness.writes[index]
                touch = _touch(liveness.alive(mine), read, written, mask)
            if touch is not None:
                touched.append((id, touch))
        shared = regs.bank if rivals else ""
        result.append(RegisterBlock(regs.name, regs.file, regs.first, regs.count, regs.comment,
                                    tuple(touched), declared=True, bank=shared))  # fmt: skip
    return tuple(result)


def _mask(regs: RegisterMap, accum_offset: int) -> int:
    first = regs.first + {"s": SCALAR, "a": accum_offset, "v": 0}[regs.file]
    return ((1 << regs.count) - 1) << first


def _owned(
    flow: Flow,
    liveness: Liveness,
    of: tuple[RegisterMap, int],
    rivals: Sequence[RegisterMap],
    operations: Mapping[int, str],
) -> set[int]:
    """Instructions at which the shared registers hold this block's value (or are filled with it):
    forward data flow of the block that the last filling operation named."""
    regs, mask = of
    names = {regs.block or regs.name} | {rival.block or rival.name for rival in rivals}
    mine = regs.block or regs.name
    start: dict[int, frozenset[str]] = {0: frozenset()}
    owned: set[int] = set()
    work = [0]
    done: dict[int, frozenset[str]] = {}
    while work:
        at = work.pop()
        owner = start[at]
        if done.get(at) == owner:
            continue
        done[at] = owner
        for index in range(flow.blocks[at].first, flow.blocks[at].last + 1):
            if liveness.writes[index] & mask:
                named = _OWNER.match(operations.get(index, ""))
                if named and named[1] in names:
                    owner = frozenset([named[1]])
                elif not owner & names:
                    owner = frozenset([mine])  # nothing names it: it may be anyone's
            if mine in owner:
                owned.add(index)
        for following in flow.blocks[at].successors:
            merged = start.get(following, frozenset()) | owner
            if following not in start or merged != start[following]:
                start[following] = merged
                work.append(following)
    return owned
