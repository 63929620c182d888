"""A schedule's tile loop unrolled for N tiles, for all roles or as one has it."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from mlagen.codegen.expand import Bounds, Instance, expand_loop, loop_bounds
from mlagen.dsl.operation import steps_of
from mlagen.targets.gfx950.dsl import Schedule


def bounds(schedule: Schedule) -> Bounds:
    """The bounds of a schedule's loop."""
    slots = [held.slots for held in schedule.lds.slotted.values()]
    slots += [block.slots for block in schedule.registers.blocks.values()]
    return loop_bounds(schedule.loop, lcm(*slots))


def expand(schedule: Schedule, n: int, role: str = "") -> list[Instance]:
    """Every cluster that a workgroup of `n` tiles passes, in order. With a role's name: as its code
    has them; the clusters are the same for all roles, in some of which one may have no step."""
    instances = expand_loop(schedule.loop, bounds(schedule), n)
    if not role:
        return instances
    return [
        replace(x, steps=steps_of(x.steps, lambda operation: operation.belongs(role)))
        for x in instances
    ]
