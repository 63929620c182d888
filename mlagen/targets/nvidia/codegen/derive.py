"""What a pipeline schedule leaves unsaid: barrier waits, their phases, and wgmma.wait_group.

* A role waits for a tile's full barrier before its first use. With an empty barrier, the producer
  waits for it before it fills the slot. Without one, the warps of a role that copies synchronise
  first, so that the threads that copy, one by TMA or all by cp.async, know what all of them know.
* The writer of an exchange arrives at its named barrier after what it wrote, with a proxy fence if
  a matrix instruction reads it; the reader waits before the first use.
* Matrix groups complete in order, so the wait before a release, a copy, or ordinary code that
  touches an accumulator is issued groups minus the last one needed.

What tensor memory needs besides is in `tensor`.

These rules alone give too many waits: an exchange often tells already that a tile is full. `thin`
leaves out what the proof does not need.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from mlagen.codegen.expand import Bounds, loop_bounds
from mlagen.dsl import Cluster, Operation, Tile, Value
from mlagen.errors import ProofError, ScheduleError
from mlagen.targets.nvidia.codegen.derived import (
    WAITS,
    derived,
    names_of,
    unfenced,
    wait_for,
)
from mlagen.targets.nvidia.codegen.extents import other_boxes
from mlagen.targets.nvidia.codegen.runs import (
    AROUND,
    ItemRun,
    Loop,
    common,
    offset,
    spans,
    walk,
)
from mlagen.targets.nvidia.codegen.tensor import (
    around_fills,
    committed,
    given_back,
    handed_over,
    with_fences,
)
from mlagen.targets.nvidia.dsl.pipeline import ACQUIRE, PipelineSchedule, Stream
from mlagen.targets.nvidia.dsl.smem import Exchange, Pipeline

ONE_THREAD_COPY = "pipeline/copy.ptx.j2"  # announces and fetches a tile wherever it is executed
NO_LOOP = Bounds(0, 0, 0, 0, 1)  # of a role that acts before and after the tiles of others


def derive(schedule: PipelineSchedule, stream: Stream) -> Loop:
    """The stream with every wait; ScheduleError or ProofError where it cannot be right."""
    steps = list(stream.loop)
    epilogue = list(stream.epilogue)
    _check_products(schedule, stream)
    for pipeline in schedule.smem.pipelines.values():
        if pipeline.resident:
            _check_refilled(schedule, pipeline)
            if schedule.persistent == "ahead" and stream.role.name == pipeline.producer:
                steps = _before_loads(stream, pipeline, steps)
            if schedule.persistent == "apart":
                stream, steps = refilled(schedule, stream, pipeline, steps)
            continue
        if stream.role.name == pipeline.producer and pipeline.tensor:
            steps = around_fills(schedule, stream, pipeline, steps)
        elif stream.role.name == pipeline.producer:
            steps = _before_copies(schedule, stream, pipeline, steps)
        if stream.role.name in pipeline.consumers:
            steps = _before_uses(schedule, stream, pipeline, steps)
    for exchange in schedule.smem.exchanges.values():
        fence = _read_by_matrix(schedule, exchange)
        steps = _exchange(schedule, stream, exchange, steps, fence)
        epilogue = _exchange(schedule, stream, exchange, epilogue, fence)
    for region in schedule.tmem.regions.values():
        epilogue = handed_over(schedule, stream, region, epilogue)
    if not schedule.persistent:
        epilogue = [*epilogue, *given_back(schedule, stream)]
    prologue, steps = _before_resident(schedule, stream, list(stream.prologue), steps)
    if schedule.tmem.used:
        steps, epilogue = (with_fences(schedule, stream, part) for part in (steps, epilogue))
    return looped(schedule, stream, prologue, steps, epilogue)


def _check_products(schedule: PipelineSchedule, stream: Stream) -> None:
    """ScheduleError for products into TMEM that more than one thread would issue."""
    for op in stream.loop:
        if op.asynchronous and schedule.tmem.capacity and not stream.role.single:
            raise ScheduleError(
                f"{schedule.file}:{op.line} {op} of role {stream.role.name!r}: its "
                f"{stream.role.threads} threads would issue each product",
                hint="declare the role with single=True",
            )


def looped(
    schedule: PipelineSchedule,
    stream: Stream,
    prologue: Sequence[Operation],
    steps: Sequence[Operation],
    epilogue: Sequence[Operation],
) -> Loop:
    """The stream with these operations, and its group waits."""
    cluster = Cluster("loop", tuple(steps), 0, None, stream.line)
    edge = loop_bounds([cluster], 1, stream.step) if steps else NO_LOOP
    leaving = given_back(schedule, stream) if schedule.persistent else ()
    loop = Loop(
        stream, tuple(prologue), cluster, tuple(epilogue), edge, {}, None, schedule.persistent,
        leaving,
    )  # fmt: skip
    if schedule.persistent == "ahead":
        check_items(schedule, loop)
    elif schedule.persistent:
        check_apart(schedule, stream)
    if schedule.tmem.capacity:  # commits tell when products are done
        return loop
    groups, final, bound = _group_waits(schedule, loop)
    return replace(loop, groups=groups, final=final, bound=bound)


def without(schedule: PipelineSchedule, loop: Loop, wait: Operation) -> tuple[Loop, bool]:
    """The stream without a derived wait, and whether it does all else as before."""
    steps = [op for op in loop.operations if op is not wait]
    cluster = Cluster("loop", tuple(steps), 0, None, loop.stream.line)
    edge = loop_bounds([cluster], 1, loop.stream.step)
    tried = replace(loop, cluster=cluster)
    # One that needed no group, and bounded no pass, leaves the groups of all others as they are.
    same = edge == loop.edge and common(tried) == common(loop) - {id(wait)}
    if id(wait) in loop.bound or not same:
        return looped(schedule, loop.stream, loop.prologue, steps, loop.epilogue), False
    at = loop.operations.index(wait)
    groups = {(where, index - (index > at)): n for (where, index), n in loop.groups.items()}
    return replace(tried, groups=groups), True


def check_items(schedule: PipelineSchedule, loop: Loop) -> None:
    """ScheduleError where a loop cannot run on from one item to the next."""
    stream, step = loop.stream, loop.edge.step
    where = f"{schedule.file}:{stream.line} role {stream.role.name!r} of a persistent kernel"
    for pipeline in schedule.smem.pipelines.values():
        if not pipeline.resident and pipeline.depth != step:
            raise ScheduleError(
                f"{where}: {pipeline.name!r} has {pipeline.depth} slots; a pass is of {step} tiles",
                hint="a ring of as many slots as a pass has tiles",
            )
    if loop.edge.low or max(map(offset, stream.loop)) >= 2 * step:
        raise ScheduleError(f"{where}: its tiles are begun more than one pass ahead")
    if stream.role.single:
        raise ScheduleError(
            f"{where} is a single thread; a barrier of the block follows an empty item"
        )
    if not any(op.ahead == "seeks" for op in stream.loop):
        raise ScheduleError(
            f"{where}: nothing in its loop seeks the next item",
            hint='every role counts its own tiles: an operation with ahead="seeks"',
        )
    for op in stream.loop:
        if op.ahead and not step <= offset(op) < 2 * step:
            raise ScheduleError(
                f"{schedule.file}:{op.line} {op}: what is ahead is for the tiles of the next pass, "
                f"i+{step} .. i+{2 * step - 1}"
            )


def check_apart(schedule: PipelineSchedule, stream: Stream) -> None:
    """ScheduleError where a role cannot go from item to item by itself."""
    where = f"{schedule.file}:{stream.line} role {stream.role.name!r} of a persistent kernel"
    if stream.step > 1:
        raise ScheduleError(
            f"{where} does {stream.step} tiles a pass",
            hint="roles that go apart have passes of one tile: slots go on where an item ends",
        )
    if not stream.items:
        raise ScheduleError(f"{where}: nothing begins its items", hint="`with each_item(ROLE)`")
    for op in stream.loop:
        if op.ahead:
            raise ScheduleError(
                f"{schedule.file}:{op.line} {op} {op.ahead}; where roles go apart nothing is ahead"
            )


# ---- pipelines ----------------------------------------------------------------------------------


def _check_refilled(schedule: PipelineSchedule, pipeline: Pipeline) -> None:
    """ScheduleError unless what is resident is released where it is filled again, and only so."""
    if bool(pipeline.releases) != (schedule.persistent == "apart"):
        raise ScheduleError(
            f"{schedule.file}: {pipeline.name!r} is resident, and "
            + (
                "released, though nothing fills it again"
                if pipeline.releases
                else "filled for each item, though nobody releases it"
            ),
            hint="`releases` where roles go apart from item to item, and nowhere else",
        )


def refilled(
    schedule: PipelineSchedule, stream: Stream, pipeline: Pipeline, steps: list[Operation]
) -> tuple[Stream, list[Operation]]:
    """What begins a role's items, and its loop, with the wait for what is resident to be released
    before it is filled, and its release by products as a commit."""

    def waited(operations: Iterable[Operation]) -> Iterator[Operation]:
        for op in operations:
            if any(value.block == pipeline.name for value in op.defines):
                yield replace(wait_for(op, pipeline, "empty"), domain=op.domain)
            yield op

    stream, steps = replace(stream, items=tuple(waited(stream.items))), list(waited(steps))
    if stream.role.name not in pipeline.released_by:
        return stream, steps
    users = [op for op in steps if pipeline.name in names_of(op)]
    releases = [op for op in users if _is(op, "release", pipeline)]
    if len(releases) != 1 or releases[0].last_tiles != 1 or users == releases:
        raise ScheduleError(
            f"{schedule.file}:{stream.line} role {stream.role.name!r} must use {pipeline.name!r} "
            f"and release it once an item, for its last tile"
        )
    freed = releases[0]
    _released_last(schedule, pipeline, users, freed, steps)
    if any(op.asynchronous for op in users):
        steps = [committed(op, pipeline) if op is freed else op for op in steps]
    return stream, steps


def _before_copies(
    schedule: PipelineSchedule, stream: Stream, pipeline: Pipeline, steps: list[Operation]
) -> list[Operation]:
    copies = [op for op in steps if _is(op, "copy", pipeline)]
    offsets = sorted(offset(op) % stream.step for op in copies)
    if offsets != list(range(stream.step)):
        tile = "a tile" if stream.step == 1 else f"for {stream.step} tiles"
        raise ScheduleError(
            f"{schedule.file}:{stream.line} role {stream.role.name!r} fills {pipeline.name!r} "
            f"{len(copies)} times {tile}; once {'is meant' if stream.step == 1 else 'each is'}"
        )
    marks = [op for op in steps if op.name == ACQUIRE and op.uses[0].block == pipeline.name]
    _check_marks(schedule, stream, pipeline, marks, steps)
    out: list[Operation] = []
    for op in steps:
        if op in marks:
            out.append(wait_for(op, pipeline, "empty"))
            continue
        if op in copies:
            if marks:
                pass
            elif pipeline.releases:
                out.append(wait_for(op, pipeline, "empty"))
            elif stream.role.threads > 1:
                out.append(
                    derived(op, "sync", pipeline.name,
                             {"barrier": stream.role.barrier, "threads": stream.role.threads})
                )  # fmt: skip
        out.append(op)
    return out


def _check_marks(
    schedule: PipelineSchedule,
    stream: Stream,
    pipeline: Pipeline,
    marks: list[Operation],
    steps: list[Operation],
) -> None:
    """ScheduleError unless each tile's slot is waited for once, before it is filled, where it is
    marked where."""
    copies = [op for op in steps if _is(op, "copy", pipeline)]
    for op in copies if marks else ():
        same = [mark for mark in marks if (offset(mark) - offset(op)) % stream.step == 0]
        if len(same) == 1 and _earlier(same[0], op, steps) and pipeline.releases:
            continue
        raise ScheduleError(
            f"{schedule.file}:{op.line} {op}: its slot is waited for {len(same)} times, by "
            f"acquire({pipeline.name!r}, ..)",
            hint="once for each tile, before its copy; or nowhere, which is right before it",
        )


def _earlier(one: Operation, other: Operation, steps: list[Operation]) -> bool:
    """Whether one operation is done for a tile before the other is."""
    return (offset(one), -steps.index(one)) > (offset(other), -steps.index(other))


def _before_uses(
    schedule: PipelineSchedule, stream: Stream, pipeline: Pipeline, steps: list[Operation]
) -> list[Operation]:
    users = [
        op for op in steps if pipeline.name in names_of(op)
        and not _is(op, "copy", pipeline) and op.name not in WAITS
    ]  # fmt: skip
    releases = [op for op in users if _is(op, "release", pipeline)]
    gives = pipeline.releases > 0 and stream.role.name in pipeline.released_by
    if len(releases) != (stream.step if gives else 0) or len(users) == len(releases):
        raise ScheduleError(
            f"{schedule.file}:{stream.line} role {stream.role.name!r} must use "
            f"{pipeline.name!r} and release each tile of it "
            f"{'once' if gives else 'never'}, and releases it {len(releases)} times"
        )
    for residue in range(stream.step):
        mine = [op for op in users if offset(op) % stream.step == residue]
        for freed in [op for op in releases if op in mine]:
            _released_last(schedule, pipeline, mine, freed, steps)
        using = [op for op in mine if op not in releases]
        if any(op.asynchronous for op in using) and schedule.tmem.capacity:
            steps = [
                committed(op, pipeline) if op in mine and op in releases else op for op in steps
            ]
        if using:
            first = max(using, key=lambda op: (offset(op), -steps.index(op)))
            index = steps.index(first)
            wait = wait_for(first, pipeline, "full")
            steps = [*steps[:index], wait, *steps[index:]]
    return steps


def _released_last(
    schedule: PipelineSchedule,
    pipeline: Pipeline,
    users: list[Operation],
    freed: Operation,
    steps: list[Operation],
) -> None:
    for user in users:
        if user is freed:
            continue
        if (offset(user), -steps.index(user)) < (offset(freed), -steps.index(freed)):
            raise ProofError(
                f"error[released-early] {schedule.file}:{user.line} {user}: the slot of "
                f"{pipeline.name!r} was released before, at :{freed.line} ({freed})",
                hint="release the tile after its last use",
            )


def _before_resident(
    schedule: PipelineSchedule, stream: Stream, prologue: list[Operation], steps: list[Operation]
) -> tuple[list[Operation], list[Operation]]:
    """Prologue and loop with waits for what is resident, before its first use; in the loop, where
    the first tiles are on their way by then."""
    for pipeline in schedule.smem.pipelines.values():
        if not pipeline.resident or stream.role.name not in pipeline.consumers:
            continue
        name = pipeline.name
        context = {
            "barrier": pipeline.full, "slot": 0, "phase": 0, "fence": unfenced(pipeline)
        }  # fmt: skip
        early = [op for op in prologue if any(v.block == name for v in op.uses)]
        users = [
            op for op in steps if any(v.block == name for v in op.uses) and op.name not in WAITS
        ]
        if early and schedule.persistent:
            raise ScheduleError(
                f"{schedule.file}:{early[0].line} {early[0]} uses {name!r} in the prologue, which "
                f"is the block's; it is filled for each item",
                hint="use it in the tile loop, for the first tile",
            )
        if early:
            index = prologue.index(early[0])
            wait = derived(early[0], "wait_full", name, context, "wait")
            prologue = [*prologue[:index], wait, *prologue[index:]]
        elif users:
            # The pass that the first of them is in is that of its first tile, where there is one.
            first = max(users, key=lambda op: (offset(op) // stream.step, -steps.index(op)))
            index, own = steps.index(first), offset(first) % stream.step == 1
            tile = Tile(offset(first) // stream.step * stream.step + own)
            wait = replace(derived(first, "wait_full", name, context, "wait"), tile=tile,
                           uses=(Value(name),), domain="second" if own else "first")  # fmt: skip
            steps = [*steps[:index], wait, *steps[index:]]
    return prologue, steps


def _before_loads(stream: Stream, pipeline: Pipeline, steps: list[Operation]) -> list[Operation]:
    """A barrier of the warps before what is resident is filled for the next item."""
    context = {"barrier": stream.role.barrier, "threads": stream.role.threads}
    out: list[Operation] = []
    for op in steps:
        if any(value.block == pipeline.name for value in op.defines):
            out.append(replace(derived(op, "sync", pipeline.name, context), domain=op.domain))
        out.append(op)
    return out


# ---- exchanges ----------------------------------------------------------------------------------


def _read_by_matrix(schedule: PipelineSchedule, exchange: Exchange) -> bool:
    reader = next(s for s in schedule.streams if s.role.name == exchange.consumer)
    return any(
        op.asynchronous and value.block == exchange.name
        for op in (*reader.loop, *reader.epilogue)
        for value in op.uses
    )


def _exchange(
    schedule: PipelineSchedule,
    stream: Stream,
    exchange: Exchange,
    steps: list[Operation],
    fence: bool,
) -> list[Operation]:
    """The steps with arrivals after the exchange's writers and waits before its readers."""
    roles = {s.role.name: s.role for s in schedule.streams}
    threads = roles[exchange.producer].threads + roles[exchange.consumer].threads
    context = {"barrier": exchange.barrier, "threads": threads, "fence": fence}
    writers = [op for op in steps if any(v.block == exchange.name for v in op.defines)]
    readers = [op for op in steps if any(v.block == exchange.name for v in op.uses)]
    for ops, role, verb in (
        (writers, exchange.producer, "writes"),
        (readers, exchange.consumer, "reads"),
    ):
        if ops and stream.role.name != role:
            raise ScheduleError(
                f"{schedule.file}:{ops[0].line} {ops[0]} of role {stream.role.name!r} {verb} "
                f"{exchange.name!r}, which goes from {exchange.producer!r} to {exchange.consumer!r}"
            )
    for ops, after in ((writers, True), (readers, False)):
        if len({offset(op) for op in ops}) > 1:
            raise ScheduleError(
                f"{schedule.file}:{ops[0].line} {exchange.name!r} is there for several tiles a "
                f"pass: {', '.join(map(str, ops))}",
                hint="declare an exchange for each of them",
            )
        if ops:
            at = ops[-1] if after else ops[0]
            index = steps.index(at) + after
            name = "arrive" if after else "arrive_and_wait"
            steps = [*steps[:index], derived(at, name, exchange.name, context), *steps[index:]]
    return steps


# ---- groups -------------------------------------------------------------------------------------


@dataclass
class _Groups:
    """Matrix groups of one role on its way through a run: issued, done, and who needs which."""

    schedule: PipelineSchedule
    line: ItemRun
    issued: int = 0
    done: int = 0
    reads: dict[tuple[str, int], int] = field(default_factory=dict)  # (pipeline, tile) -> group
    writers: dict[str, int] = field(default_factory=dict)  # register block -> group
    readers: dict[str, int] = field(default_factory=dict)  # register block or exchange -> group
    there: dict[str, list[str]] = field(default_factory=dict)  # resident: what may lie there
    elsewhere: frozenset[str] = frozenset()  # what lies in SMEM, and in no registers

    def __post_init__(self) -> None:
        smem = self.schedule.smem
        self.elsewhere = frozenset({*smem.pipelines, *smem.exchanges, *smem.scratches})

    def issue(self, op: Operation, tile: int) -> None:
        self.issued += 1
        for value in op.uses:
            pipeline = self.schedule.smem.pipelines.get(value.block)
            if pipeline is not None and not pipeline.resident:
                self.reads[(value.block, tile)] = self.issued
            else:
                self.readers[value.block] = self.issued
        for value in op.defines:
            self.writers[value.block] = self.issued

    def needed(self, op: Operation, tile: int) -> tuple[int, bool]:
        """The last group that must be done before ordinary code `op`, and whether `op` touches
        registers of it."""
        pipelines = self.schedule.smem.pipelines
        if op.access is not None or op.name == "sync":
            name = op.access.target.ring if op.access is not None else op.uses[0].block
            if pipelines[name].resident:
                return self._read_there(pipelines[name]), False
            freed = op.access is not None and op.access.kind == "release"
            before = tile if freed else self.line.before(tile, pipelines[name].depth)
            if before is None:
                return 0, False
            return max(
                self.reads.get((n, before), 0) for n in (name, pipelines[name].within)
            ), False
        if op.name in WAITS:
            return 0, False
        groups = [self.writers.get(value.block, 0) for value in op.uses]
        # Not even read are registers that a group in flight reads (PTX ISA, wgmma.mma_async).
        groups += [
            self.readers.get(value.block, 0) for value in op.uses
            if value.block not in self.elsewhere
        ]  # fmt: skip
        for value in op.defines:
            block = value.block
            groups += self.writers.get(block, 0), self.readers.get(block, 0)
            groups.append(self.reads.get((block, tile), 0))
            if block in pipelines and pipelines[block].resident:
                groups.append(self._read_there(pipelines[block]))
        return max(groups, default=0), True

    def _read_there(self, pipeline: Pipeline) -> int:
        """The last group that reads resident tiles, or an exchange in their place."""
        if pipeline.name not in self.there:
            exchanges = self.schedule.smem.exchanges.values()
            lain = [x.name for x in exchanges if any(x.overlaps(tile) for tile in pipeline.tiles)]
            self.there[pipeline.name] = [pipeline.name, *lain]
        return max(self.readers.get(name, 0) for name in self.there[pipeline.name])


def _group_waits(
    schedule: PipelineSchedule, loop: Loop
) -> tuple[dict[tuple[str, int], int], int | None, frozenset[int]]:
    """Group waits of the loop by place, the strictest over all runs, the final one, and which
    operations needed one, by id.

    ptxas understands no count but 0 for registers of a group that was issued a pass before: such a
    group is waited for at the end of its pass (otherwise it serialises all of them, C7514).
    """
    ends: set[str] = set()
    bound: set[int] = set()
    while True:
        waits: dict[tuple[str, int], int] = {}
        carried: set[str] = set()
        flying = False
        for counts in spans(loop):
            flying |= _follow(schedule, loop, counts, ends, waits, carried, bound)
        if carried <= ends:
            return waits, 0 if flying else None, frozenset(bound)
        ends |= carried


def _follow(
    schedule: PipelineSchedule,
    loop: Loop,
    counts: tuple[int, ...],
    ends: set[str],
    waits: dict[tuple[str, int], int],
    carried: set[str],
    bound: set[int],
) -> bool:
    """Follows a run over items of `counts` tiles; whether groups are in flight at an item's end."""
    index_of = {id(step): index for index, step in enumerate(loop.cluster.steps)}
    free = _free(schedule, loop)
    state = _Groups(schedule, ItemRun(counts, loop.edge.step))
    passes: list[tuple[str, int]] = []  # section, groups issued by its end
    flying = False

    def wait(key: tuple[str, int], group: int) -> None:
        waits[key] = min(waits.get(key, state.issued - group), state.issued - group)
        state.done = max(state.done, state.issued - waits[key])

    for one in walk(loop, counts):
        here = one.section
        if here in AROUND:
            if here == "end":
                flying |= state.done < state.issued
                state.done = state.issued
            continue
        for op, place in one.steps:
            if op.asynchronous:
                state.issue(op, place)
            if id(op) in free:
                continue
            group, registers = state.needed(op, place)
            if group <= state.done:
                continue
            at = bisect_left(passes, group, key=itemgetter(1))
            if registers and at < len(passes):
                carried.add(passes[at][0])
            bound.add(id(op))
            wait((here, index_of[id(op)]), group)
        if here in ends and state.done < state.issued:
            wait((here, len(loop.cluster.steps)), state.issued)
        passes.append((here, state.issued))
    return flying


def _free(schedule: PipelineSchedule, loop: Loop) -> frozenset[int]:
    """Operations of a loop, by id, that need no group: those that issue one, and those that share
    no register and no exchange with one and are in no pipeline."""
    groups = [op for op in loop.operations if op.asynchronous]
    shared = {value.block for op in groups for value in (*op.uses, *op.defines)}
    shared |= schedule.smem.pipelines.keys()
    return frozenset(
        id(op) for op in loop.operations
        if op.asynchronous or (op.name in WAITS and op.name != "sync")
        or (op.access is None and not shared & {v.block for v in (*op.uses, *op.defines)})
    )  # fmt: skip


def _is(operation: Operation, kind: str, pipeline: Pipeline) -> bool:
    access = operation.access
    return access is not None and access.kind == kind and access.target.ring == pipeline.name


def check_pipelines(schedule: PipelineSchedule) -> None:
    """ScheduleError unless every pipeline and exchange has its producer and its consumers."""
    names = {stream.role.name for stream in schedule.streams}
    smem = schedule.smem
    links = [(p.name, (p.producer, *p.consumers), "pipeline") for p in smem.pipelines.values()]
    links += [(x.name, (x.producer, x.consumer), "exchange") for x in smem.exchanges.values()]
    for link, roles, what in links:
        for role in roles:
            if role not in names:
                raise ScheduleError(
                    f"{schedule.file}: {what} {link!r} names the role {role!r}, which does nothing",
                    hint="roles with a stream: " + ", ".join(sorted(names)),
                )
    for stream in schedule.streams:
        for op in (*stream.prologue, *stream.items, *stream.loop, *stream.epilogue):
            loads = any(v.block in smem.pipelines and smem.pipelines[v.block].resident
                        for v in op.defines)  # fmt: skip
            if op.guarded and (op.asynchronous or op.access is not None or loads):
                raise ScheduleError(
                    f"{schedule.file}:{op.line} {op} may skip itself, and others wait for it",
                    hint="a guarded operation does arithmetic and stores only",
                )
    for pipeline in smem.pipelines.values():
        _check_arrivals(schedule, pipeline)


def _check_arrivals(schedule: PipelineSchedule, pipeline: Pipeline) -> None:
    """ScheduleError unless as many threads fill a pipeline, and warps release it, as it counts."""
    streams = {stream.role.name: stream for stream in schedule.streams}
    producer = streams[pipeline.producer]
    role = producer.role
    for op in producer.loop:
        alone = op.template == ONE_THREAD_COPY and _is(op, "copy", pipeline)
        if alone and (wrong := other_boxes(schedule, op)):
            raise ScheduleError(f"{schedule.file}:{op.line} {op} {wrong}")
        if alone and role.threads > 1:
            raise ScheduleError(
                f"{schedule.file}:{op.line} {op}: {role.threads} threads of role {role.name!r} "
                f"would announce and fetch the tile, each all of it",
                hint="`single=True` leaves one thread of a role",
            )
    if pipeline.producer_threads and pipeline.producer_threads != role.threads:
        raise ScheduleError(
            f"{schedule.file}: pipeline {pipeline.name!r} is filled by {pipeline.producer_threads} "
            f"threads, role {role.name!r} has {role.threads}"
        )
    releasing = [streams[name].role for name in pipeline.released_by]
    warps = sum(1 if role.single else len(role.warps) for role in releasing)
    if pipeline.releases and pipeline.releases != warps:
        raise ScheduleError(
            f"{schedule.file}: a slot of {pipeline.name!r} is empty after {pipeline.releases} "
            f"releases; {' and '.join(pipeline.released_by)} have {warps} warps, each of which "
            f"releases it"
        )
