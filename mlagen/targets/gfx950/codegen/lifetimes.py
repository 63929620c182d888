"""Register lifetimes: two values that share registers are never alive at the same time.

This is checked on the expansion, tile by tile: a value is alive from the operation that defines it
to the last one that uses it. Values share registers when their blocks share a bank, or when they
are two tiles in the same slot of a register ring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

from mlagen.dsl import Operation, Value
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.codegen.expand import bounds, expand
from mlagen.targets.gfx950.codegen.program import streams_of
from mlagen.targets.gfx950.dsl import Schedule


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Value of block `block` for tile `tile`, alive in steps start..end of the expansion."""

    block: str
    tile: int | None
    bank: str
    slot: int
    start: int
    end: int
    defined_by: Operation
    last_used_by: Operation


def lifetimes(schedule: Schedule, n: int, role: str = "") -> list[Lifetime]:
    """Lifetimes of all values in a workgroup of `n` tiles, in the code of a role where they differ.
    ScheduleError for a use of a value that nothing defined."""
    blocks = schedule.registers.blocks
    alive: dict[tuple[str, int | None], Lifetime] = {}
    once = [op for op in schedule.prologue if op.belongs(role)]
    order: list[tuple[int | None, Operation]] = [(None, op) for op in once]
    order += [(None, op) for op in schedule.items if op.belongs(role)]
    order += [(inst.i, op) for inst in expand(schedule, n, role) for op in inst.operations]
    for step, (i, operation) in enumerate(order):

        def key(value: Value, i: int | None = i) -> tuple[str, int | None]:
            return value.block, None if value.tile is None else (i or 0) + value.tile.offset

        for value in operation.uses:
            found = alive.get(key(value))
            if found is None:
                raise ScheduleError(
                    f"{schedule.file}:{operation.line} {operation}: {value} is used but nothing "
                    f"defines it before (tile {key(value)[1]} of {n})"
                )
            alive[key(value)] = Lifetime(
                found.block, found.tile, found.bank, found.slot, found.start, step,
                found.defined_by, operation,
            )  # fmt: skip
        for value in operation.defines:
            name, tile = key(value)
            block = blocks.get(name)
            slot = 0 if tile is None or block is None else tile % block.slots
            alive[(name, tile)] = Lifetime(
                name, tile, block.bank if block else name, slot, step, step, operation, operation
            )
    if schedule.persistent:
        # What the prologue made and an item uses, the next item uses again.
        return [
            replace(x, end=len(order)) if x.start < len(once) <= x.end else x
            for x in alive.values()
        ]
    return list(alive.values())


def check_lifetimes(schedule: Schedule) -> int:
    """ScheduleError naming both values where two that share registers overlap. Returns how many
    values were checked, over N = 1 .. until the loop has passed through twice."""
    edge = bounds(schedule)
    checked = 0
    counts = range(1, edge.first_looped + 2 * edge.period + 1)
    for n, stream in product(counts, streams_of(schedule)):
        groups: dict[tuple[str, int], list[Lifetime]] = {}
        for life in lifetimes(schedule, n, stream.role):
            if life.block not in schedule.lds.exchanges:  # the proof of LDS looks after those
                groups.setdefault((life.bank, life.slot), []).append(life)
                checked += 1
        for group in groups.values():
            group.sort(key=lambda life: life.start)
            for before, after in pairwise(group):
                if after.start <= before.end:
                    raise ScheduleError(
                        f"{schedule.file}:{after.defined_by.line} {after.defined_by} defines "
                        f"{after.block} of tile {after.tile} in registers of bank "
                        f"{before.bank!r} where {before.block} of tile {before.tile} is alive "
                        f"until {before.last_used_by} (:{before.last_used_by.line}), N = {n}",
                        hint="keep the two in banks of their own, or order their clusters",
                    )
    return checked
