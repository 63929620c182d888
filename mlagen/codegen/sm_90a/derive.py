"""What a pipeline schedule leaves unsaid: barrier waits, their phases, and wgmma.wait_group.

A consumer waits for a tile to be full before its first use of it; a producer waits for the slot to
be empty before it fills it. Matrix groups complete in order, so the wait before a release, or
before ordinary code that touches an accumulator, is issued groups minus the last one needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlagen.codegen.expand import Bounds, expand_loop, loop_bounds
from mlagen.dsl import Cluster, Operation, Value
from mlagen.dsl.pipeline import PipelineSchedule, Stream
from mlagen.dsl.smem import Handoff
from mlagen.errors import ProofError, ScheduleError

WAIT = "pipeline/wait.ptx.j2"
SPAN = 4  # tile counts beyond the first looped one over which group waits are derived


@dataclass(frozen=True)
class Loop:
    """A stream's loop with its barrier waits in place."""

    stream: Stream
    cluster: Cluster
    edge: Bounds
    groups: dict[tuple[str, int], int]  # (section, operation index) -> wgmma.wait_group before it
    final: int | None  # wait_group before the epilogue, None where nothing is in flight


def touches(operation: Operation, handoff: Handoff) -> bool:
    """Whether the operation uses a tile of the hand-off."""
    if operation.access is not None and operation.access.target.ring == handoff.name:
        return True
    return any(value.block == handoff.name for value in operation.uses)


def derive(schedule: PipelineSchedule, stream: Stream) -> Loop:
    """The stream's loop with every wait; ScheduleError or ProofError where it cannot be right."""
    steps = list(stream.loop)
    for handoff in schedule.smem.handoffs.values():
        if handoff.resident:
            continue
        if stream.role.name == handoff.producer:
            steps = _before_copies(schedule, stream, handoff, steps)
        if stream.role.name == handoff.consumer:
            steps = _before_uses(schedule, stream, handoff, steps)
    cluster = Cluster("loop", tuple(steps), 0, None, stream.line)
    edge = loop_bounds([cluster], 1)
    groups, final = _group_waits(schedule, stream, cluster, edge)
    return Loop(stream, cluster, edge, groups, final)


def section(edge: Bounds, i: int, n: int) -> str:
    """Which printed section iteration `i` of `n` tiles lies in."""
    if n < edge.first_looped:
        return f"N = {n}, i = {i}"
    if i < edge.low:
        return f"prologue, i = {i}"
    if i < n - edge.high:
        return "loop"
    return f"drain, i = N{i - n:+d}" if i != n else "drain, i = N"


def _before_copies(
    schedule: PipelineSchedule, stream: Stream, handoff: Handoff, steps: list[Operation]
) -> list[Operation]:
    copies = [op for op in steps if _is(op, "copy", handoff)]
    if len(copies) != 1:
        raise ScheduleError(
            f"{schedule.file}:{stream.line} role {stream.role.name!r} fills {handoff.name!r} "
            f"{len(copies)} times a tile; once is meant"
        )
    index = steps.index(copies[0])
    return [*steps[:index], wait_operation(copies[0], handoff, "empty"), *steps[index:]]


def _before_uses(
    schedule: PipelineSchedule, stream: Stream, handoff: Handoff, steps: list[Operation]
) -> list[Operation]:
    users = [op for op in steps if touches(op, handoff)]
    releases = [op for op in users if _is(op, "release", handoff)]
    if len(releases) != 1 or len(users) < 2:
        raise ScheduleError(
            f"{schedule.file}:{stream.line} role {stream.role.name!r} must use and release each "
            f"tile of {handoff.name!r} once, and releases it {len(releases)} times"
        )
    freed = releases[0]
    for user in users:
        if user is freed:
            continue
        late = (_offset(user), -steps.index(user)) < (_offset(freed), -steps.index(freed))
        if late:
            raise ProofError(
                f"error[released-early] {schedule.file}:{user.line} {user}: the slot of "
                f"{handoff.name!r} was released before, at :{freed.line} ({freed})",
                hint="release the tile after its last use",
            )
    first = max(users, key=lambda op: (_offset(op), -steps.index(op)))
    index = steps.index(first)
    return [*steps[:index], wait_operation(first, handoff, "full"), *steps[index:]]


def resident_waits(schedule: PipelineSchedule, stream: Stream) -> list[Operation]:
    """Waits for what is resident, after the prologue of the role that uses it."""
    return [
        Operation(
            "wait_full",
            WAIT,
            None,
            lambda at, handoff=handoff: {"barrier": handoff.full, "slot": 0, "phase": 0},  # type: ignore[misc]
            line=stream.line,
        )
        for handoff in schedule.smem.handoffs.values()
        if handoff.resident and handoff.consumer == stream.role.name
    ]


def wait_operation(user: Operation, handoff: Handoff, what: str) -> Operation:
    """The derived wait for `handoff`'s barrier before `user`."""
    return replace(
        user,
        name=f"wait_{what}",
        template=WAIT,
        context=lambda at: {"barrier": handoff.full if what == "full" else handoff.empty},
        defines=(),
        uses=(Value(handoff.name, user.tile),),
        access=None,
        asynchronous=False,
    )


def _group_waits(
    schedule: PipelineSchedule, stream: Stream, cluster: Cluster, edge: Bounds
) -> tuple[dict[tuple[str, int], int], int | None]:
    """Group waits of the loop by place, the strictest over the tile counts, and the final one."""
    index_of = {id(step): index for index, step in enumerate(cluster.steps)}
    waits: dict[tuple[str, int], int] = {}
    flying_at_end = False
    for n in range(1, edge.first_looped + SPAN):
        issued = done = 0
        users: dict[tuple[str, int], int] = {}  # (hand-off, tile) -> last group that reads it
        writers: dict[str, int] = {}  # accumulator -> last group that writes it
        for instance in expand_loop([cluster], edge, n):
            for op in instance.operations:
                tile = instance.i + _offset(op)
                needed = 0
                if op.access is not None and op.access.kind == "release":
                    needed = users.get((op.access.target.ring, tile), 0)
                elif not op.asynchronous:
                    touched = [value.block for value in (*op.uses, *op.defines)]
                    needed = max((writers.get(block, 0) for block in touched), default=0)
                if needed > done:
                    key = (section(edge, instance.i, n), index_of[id(op)])
                    waits[key] = min(waits.get(key, issued - needed), issued - needed)
                    done = needed
                if op.asynchronous:
                    issued += 1
                    for value in op.uses:
                        if value.block in schedule.smem.handoffs:
                            users[(value.block, tile)] = issued
                    for value in op.defines:
                        writers[value.block] = issued
        flying_at_end = flying_at_end or done < issued
    return waits, 0 if flying_at_end else None


def _is(operation: Operation, kind: str, handoff: Handoff) -> bool:
    access = operation.access
    return access is not None and access.kind == kind and access.target.ring == handoff.name


def _offset(operation: Operation) -> int:
    return operation.tile.offset if operation.tile else 0


def check_handoffs(schedule: PipelineSchedule) -> None:
    """ScheduleError unless every hand-off has its producer and its consumer."""
    names = {stream.role.name for stream in schedule.streams}
    for handoff in schedule.smem.handoffs.values():
        for role in (handoff.producer, handoff.consumer):
            if role not in names:
                raise ScheduleError(
                    f"{schedule.file}: hand-off {handoff.name!r} names the role {role!r}, which "
                    f"does nothing",
                    hint="roles with a stream: " + ", ".join(sorted(names)),
                )
