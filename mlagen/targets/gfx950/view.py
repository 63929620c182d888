"""The view of a schedule of clusters: counted in the program that `build` would assemble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mlagen.codegen.manifest import plain_fields
from mlagen.codegen.templates import Templates
from mlagen.dsl import Cluster, Interleave, Operation
from mlagen.schedule_view.model import (
    Appearance,
    ScheduleRow,
    ScheduleView,
    Unit,
    Use,
    sections_of,
    spelled,
    title_of,
    unit_of,
)
from mlagen.targets.gfx950.codegen.build import generate, proof_of
from mlagen.targets.gfx950.codegen.map import kernel_map
from mlagen.targets.gfx950.codegen.program import Layout, Piece, ProgramInstruction
from mlagen.targets.gfx950.dsl import Schedule

BARRIER = "s_barrier"


def view(schedule: Schedule, templates: Templates) -> ScheduleView:
    """The view of a schedule whose roles share one table of clusters."""
    program = generate(schedule, templates, allow_unproved=True)
    layout = program.layout
    registers, lds = schedule.registers, schedule.lds
    return ScheduleView(
        name=schedule.name,
        target=schedule.target.name,
        schedule_file=schedule.file,
        title=title_of(schedule.doc),
        problem=plain_fields(schedule.problem),
        knobs=dict(schedule.knobs),
        rows=tuple(row for cluster in schedule.loop for row in _rows(schedule, layout, cluster)),
        around=sections_of(schedule.prologue, schedule.items, schedule.epilogue),
        notes=_notes(layout),
        uses=(
            Use("LDS bytes", lds.used, lds.capacity),
            Use("vector registers of a lane", registers.used, registers.budget),
            Use("scalar registers of a wave", registers.next_scalar, registers.scalar_budget),
        ),
        map=kernel_map(schedule),
        proof=proof_of(schedule, program),
    )


def _notes(layout: Layout) -> tuple[str, ...]:
    few = layout.first_looped - 1
    period = layout.period
    notes = [f"the loop is steady for {layout.steady_from} <= i < N-{layout.steady_to}"]
    if period > 1:
        notes.append(f"its slots repeat after {period} tiles, for which it is unrolled")
    if few:
        notes.append(f"fewer than {few + 1} tiles have straight code instead")
    notes.append("a wait by hand stands at an s_barrier: cluster(NAME, wait=Wait(vm=.., lgkm=..))")
    return tuple(notes)


def _rows(schedule: Schedule, layout: Layout, cluster: Cluster) -> Iterator[ScheduleRow]:
    """The rows of a cluster: its operations in the order of the schedule, then its barrier. Where
    the code of roles differs in one, each has a row."""
    beside = {
        id(operation): spelled(step.first if operation is not step.first else step.rest[0])
        for step in cluster.steps
        if isinstance(step, Interleave)
        for operation in step.operations
    }
    everyone = tuple(role.name for role in schedule.roles.members)
    for operation in (*cluster.operations(), None):
        found: list[ScheduleRow] = []
        for stream in layout.streams:
            if operation is not None and not operation.belongs(stream.role):
                continue
            mine = tuple(role.name for role in stream.members)
            row = replace(_row(layout, stream.role, cluster, operation), roles=mine)
            alike = next((n for n, other in enumerate(found) if _same(other, row)), None)
            if alike is None:
                found.append(row)
            else:
                found[alike] = replace(row, roles=(*found[alike].roles, *mine))
        for row in found:
            roles = () if row.roles == everyone else row.roles
            yield replace(row, roles=roles, beside=beside.get(id(operation), ""))


def _same(a: ScheduleRow, b: ScheduleRow) -> bool:
    return replace(a, roles=()) == replace(b, roles=())


def _row(layout: Layout, stream: str, cluster: Cluster, operation: Operation | None) -> ScheduleRow:
    """An operation of a cluster, or the cluster's barrier, in the code of one stream."""
    steady: list[_Found] = []
    places: dict[str, dict[str, Appearance]] = {"prologue": {}, "drain": {}}
    for segment in layout.segments:
        for piece in segment.pieces if segment.role == stream else ():
            section = piece.section.partition(",")[0]
            if piece.cluster is not cluster or section not in ("loop", *places):
                continue
            found = _find(piece, operation)
            if found is not None and section == "loop":
                steady.append(found)
            elif found is not None:
                at = piece.iteration.removeprefix("i = ")
                places[section].setdefault(at, Appearance(at, found.waits))
    first = steady[0] if steady else _Found({}, (), "")
    return ScheduleRow(
        cluster=cluster.name,
        roles=(),
        operation=BARRIER if operation is None else spelled(operation),
        line=cluster.line if operation is None else operation.line,
        units=first.units,
        waits=first.waits,
        by_hand=operation is None and cluster.wait is not None,
        needed=first.needed,
        prologue=tuple(places["prologue"].values()),
        drain=tuple(places["drain"].values()),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What a piece of code has of one row."""

    units: Mapping[Unit, int]
    waits: tuple[str, ...]
    needed: str


def _find(piece: Piece, operation: Operation | None) -> _Found | None:
    """The instructions of a piece that belong to an operation, or to no one: those of its barrier.
    A wait belongs to what comes after it."""
    units: Counter[Unit] = Counter()
    waits: list[str] = []
    pending: list[ProgramInstruction] = []
    needed, closed = "", operation is None and not piece.closed
    for x in piece.body:
        if x.pipe == "wait" and x.owner is None:
            pending.append(x)
        elif x.owner is operation and (operation is not None or x.pipe == "barrier"):
            waits += [_counts(wait) for wait in pending]
            needed = next((wait.needed for wait in pending if wait.needed), "")
            pending, closed = [], True
            units[_unit(x)] += operation is not None
        elif x.owner is not None:
            pending = []
    if operation is None and pending:
        waits, needed = [_counts(wait) for wait in pending], pending[-1].needed
    found = bool(sum(units.values())) if operation is not None else closed
    return _Found(dict(+units), tuple(waits), needed) if found else None


def _counts(wait: ProgramInstruction) -> str:
    return wait.text.removeprefix("s_waitcnt ")


def _unit(x: ProgramInstruction) -> Unit:
    if x.pipe == "vmem" and x.access is not None and x.access.kind == "copy":
        return "dma"
    return unit_of(x.pipe)
