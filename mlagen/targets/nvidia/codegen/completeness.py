"""Checks that a pipeline schedule has what its kernel needs: each operation once, in its section,
by its role, for its tile of a pass. `flow` checks what these operations compute together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mlagen.dsl import Operation, Part, PipelineOrder, Tile
from mlagen.targets.nvidia.codegen.runs import offset
from mlagen.targets.nvidia.dsl import PipelineSchedule
from mlagen.targets.nvidia.dsl.pipeline import ACQUIRE, Stream


def check_words(schedule: PipelineSchedule) -> tuple[str, ...]:
    """Operations that stand where the kernel has none, twice, or not at all."""
    orders = orders_of(schedule)
    return tuple(
        text
        for stream in schedule.streams
        for section, operations, parts in _sections(schedule, stream, orders[stream.role.name])
        for text in _words(schedule, stream, orders[stream.role.name], section, operations, parts)
    )


def orders_of(schedule: PipelineSchedule) -> Mapping[str, PipelineOrder]:
    """The plain order of each role: the kernel's, of all of them, or of its own loop without
    overlap, of each pass first what the schedule does furthest ahead."""
    if schedule.plain is not None:
        return {stream.role.name: schedule.plain for stream in schedule.streams}
    return {stream.role.name: _own(stream) for stream in schedule.streams}


def _own(stream: Stream) -> PipelineOrder:
    step = stream.step

    def parts(operations: Iterable[Operation], step: int = 1) -> tuple[Part, ...]:
        found = (Part(stream.role.name, op.key, offset(op) % step) for op in operations)
        return tuple(dict.fromkeys(found))

    sought = [op for op in stream.loop if op.ahead == "seeks"]
    rest = [op for op in stream.loop if op.ahead != "seeks"]
    return PipelineOrder(
        before=parts(stream.prologue),
        seeks=parts(sought),
        item=parts(stream.items),
        tiles=parts(sorted(rest, key=lambda op: -(offset(op) // step)), step),
        after=parts(stream.epilogue),
        step=step,
    )


def _sections(
    schedule: PipelineSchedule, stream: Stream, plain: PipelineOrder
) -> Iterator[tuple[str, list[Operation], list[Part]]]:
    """The sections of a role's code: what stands there, and what the kernel does there."""

    def mine(parts: Iterable[Part]) -> list[Part]:
        return [part for part in parts if part.role == stream.role.name]

    item = mine(plain.item)
    once = [] if schedule.persistent else item  # where a block has one item
    yield "prologue", list(stream.prologue), [*mine(plain.before), *once]
    yield "each_item", list(stream.items), [] if once else item
    yield "tile loop", list(stream.loop), [*mine(plain.seeks), *mine(plain.tiles)]
    yield "epilogue", list(stream.epilogue), mine(plain.after)


def _words(
    schedule: PipelineSchedule,
    stream: Stream,
    plain: PipelineOrder,
    section: str,
    operations: Sequence[Operation],
    parts: Sequence[Part],
) -> Iterator[str]:
    step, hints = plain.step, plain.hints
    looped, role = section == "tile loop", f"role {stream.role.name}"
    if looped and stream.step != step:
        yield (
            f"error[not-of-kernel] {schedule.file}:{stream.line} {role} does {stream.step} tiles a "
            f"pass; the kernel does {step}"
        )
        return
    wanted = {(part.key, part.tile): part for part in parts}
    first: dict[tuple[str, int], Operation] = {}
    for op in operations:
        if op.key in hints or op.name == ACQUIRE:
            continue
        name = (op.key, offset(op) % step if looped else 0)
        place = f"{schedule.file}:{op.line} {_word(op)} of {role}"
        if name not in wanted:
            yield (
                f"error[not-of-kernel] {place} stands in the {section}, where the kernel does "
                f"{_instead(op, parts, looped=looped)}"
            )
        elif name in first:
            yield (
                f"error[done-twice] {place} is there already, at :{first[name].line} as "
                f"{first[name]}: it is done once{' a tile' * looped}"
            )
        first.setdefault(name, op)
    for name, part in wanted.items():
        if name not in first:
            of = f" for tile {Tile(part.tile)} of a pass" if looped and step > 1 else ""
            yield (
                f"error[not-done] {schedule.file}:{stream.line} {part.key!r} of {role} is missing "
                f"in the {section}{of}: the kernel does it once{' a tile' * looped}. "
                f"First at N = {part.tile + 1 if looped else 0}."
            )


def _instead(op: Operation, parts: Sequence[Part], *, looped: bool) -> str:
    """What the kernel does where it does not do `op`: the same otherwise, or all of it."""
    same = [part for part in parts if part.key == op.key]
    if same and looped:
        return "it for tile " + " and ".join(str(Tile(part.tile)) for part in same) + " of a pass"
    near = [part for part in parts if part.key.split(" ", 1)[0] == op.name]
    return ", ".join(dict.fromkeys(part.key for part in near or parts)) or "nothing"


def _word(op: Operation) -> str:
    """An operation as errors name it."""
    return f"{op} [{op.of}]" if op.of else str(op)
