"""What a view of a schedule says, as values: the same for all targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlagen.artifact import Proof
from mlagen.artifact.maps import KernelMap
from mlagen.dsl import Operation

Unit = Literal["matrix", "vector", "transcendental", "memory", "dma", "other"]
UNITS: tuple[Unit, ...] = ("matrix", "vector", "transcendental", "memory", "dma", "other")
"""`memory`: LDS or SMEM; `dma`: copies into it; `other`: global memory, scalars, control."""


@dataclass(frozen=True, slots=True)
class Appearance:
    """A row in a pass of prologue or drain. `at`: the loop variable there, "-1" or "N-2", or the
    name of the piece of code. `waits`: as `Row.waits`."""

    at: str
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One operation of the tile loop, or the barrier that closes a cluster.

    `cluster`: "" where a schedule has none. `roles`: who does it; empty: all. `beside`: the
    operation that its instructions are interleaved with. `units`: instructions of a steady pass.
    `waits`: those derived for it in a steady pass, in order: before it, inside it, after it.
    `by_hand`: the schedule spells the wait; `needed` is then what the accesses need.
    """

    cluster: str
    roles: tuple[str, ...]
    operation: str
    line: int
    beside: str = ""
    units: Mapping[Unit, int] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    by_hand: bool = False
    needed: str = ""
    prologue: tuple[Appearance, ...] = ()
    drain: tuple[Appearance, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """`used` of `limit`. `of`: "vector registers of a lane", "LDS bytes", ..."""

    of: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """All that is told of a schedule for one problem. `around`: operations outside of the loop, by
    section. `notes`: how the loop goes. `proof`: as a manifest would say it."""

    name: str
    target: str
    schedule_file: str
    title: str
    problem: Mapping[str, Any]
    knobs: Mapping[str, Any]
    rows: tuple[ScheduleRow, ...]
    around: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    uses: tuple[Use, ...]
    map: KernelMap
    proof: Proof


def unit_of(pipe: str) -> Unit:
    """The unit of a pipe, as generators and inspections name it."""
    return next((unit for unit in UNITS if unit == ("memory" if pipe == "lds" else pipe)), "other")


def spelled(operation: Operation) -> str:
    """An operation as its row names it: `copy(K, i+3)`, `qk(i)`, `pv(i+1) of P right`."""
    access, tile = operation.access, operation.tile
    if access is not None and access.kind == operation.name:
        return f"{operation.name}({access.target.ring}, {tile})"
    name = f"{operation.name}({tile})" if tile is not None else operation.name
    return f"{name} of {operation.of}" if operation.of else name


def sections_of(
    prologue: Iterable[Operation], items: Iterable[Operation], epilogue: Iterable[Operation]
) -> dict[str, tuple[str, ...]]:
    """The operations outside of the loop by name, with the roles that some are limited to."""
    found = {
        section: tuple(
            f"{op.key} [{', '.join(op.roles)}]" if op.roles else op.key for op in operations
        )
        for section, operations in (("before", prologue), ("each item", items), ("after", epilogue))
    }
    return {section: names for section, names in found.items() if names}


def title_of(doc: str) -> str:
    """The first sentence or so of a schedule's docstring: its first paragraph."""
    return " ".join(doc.strip().split("\n\n", 1)[0].split())
