"""What a schedule leaves unsaid of tensor memory: commits, the wait for them, fences, its end.

* A release in a role whose products read the slot arrives when these are done: it is a commit.
* A pipeline of TMEM is filled by products: the producer waits for its slot before the first of a
  tile, and commits after the last. Where threads fill it, each warp arrives after the last.
* A region is handed over once an item, after the last product: its producer commits, its reader
  waits. That the producer writes there again after the reader has read follows from other waits.
* Two roles that touch TMEM and meet at a barrier fence what one did there before the arrival, and
  the other does after the wait (PTX ISA, tcgen05 memory consistency model). A commit fences by
  itself. `thin` leaves out fences that the proof does not need.
* An operand that a role copies to TMEM for its own products is handed to nobody.
* The role that reads TMEM last gives it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mlagen.dsl import Operation
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.codegen.derived import derived, names_of, wait_for
from mlagen.targets.nvidia.codegen.runs import offset
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule, Stream
from mlagen.targets.nvidia.dsl.smem import Pipeline
from mlagen.targets.nvidia.dsl.tmem import TmemRegion

# What arrives when the products before it are done: a commit, in one block or in both of a pair.
COMMITS = {False: "pipeline/commit.ptx.j2", True: "pipeline/commit_both.ptx.j2"}


def committed(freed: Operation, pipeline: Pipeline) -> Operation:
    """A release that arrives when all products before it are done."""
    asks = freed.context
    more, template = {"barrier": pipeline.empty}, COMMITS[bool(pipeline.pair)]
    return replace(freed, template=template, context=lambda at: {**asks(at), **more})


def _commit(at: Operation, block: str, barrier: int, *, both: bool) -> Operation:
    """The commit after an operation; `both`: in both blocks of a CTA pair."""
    made = derived(at, "commit", block, {"barrier": barrier, "slot": 0})
    return replace(made, template=COMMITS[both])


def around_fills(
    schedule: PipelineSchedule, stream: Stream, pipeline: Pipeline, steps: list[Operation]
) -> list[Operation]:
    """The steps with the wait for a slot before what first writes a tile, and after the last the
    commit, or the arrival of the threads."""
    writers = [op for op in steps if any(v.block == pipeline.name for v in op.defines)]
    threads = pipeline.producer_threads > 0
    for residue in range(stream.step):
        mine = [op for op in writers if offset(op) % stream.step == residue]
        kinds = {(op.tile, op.asynchronous) for op in mine}
        if len(kinds) != 1 or mine[0].asynchronous == threads:
            raise ScheduleError(
                f"{schedule.file}:{stream.line} role {stream.role.name!r} fills {pipeline.name!r}, "
                f"columns of TMEM, with {', '.join(map(str, mine)) or 'nothing'}",
                hint=("threads" if threads else "matrix products") + " of one tile do, in one pass",
            )
        first, last = steps.index(mine[0]), steps.index(mine[-1])
        across = bool(pipeline.pair)
        if threads:
            context = {"barrier": pipeline.full, "across": across}
            done = derived(mine[-1], "arrive_full", pipeline.name, context)
        else:
            done = _commit(mine[-1], pipeline.name, pipeline.full, both=across)
        waits = [wait_for(mine[0], pipeline, "empty")] if pipeline.releases else []
        steps = [*steps[:first], *waits, *steps[first : last + 1], done, *steps[last + 1 :]]
    return steps


def handed_over(
    schedule: PipelineSchedule, stream: Stream, region: TmemRegion, epilogue: list[Operation]
) -> list[Operation]:
    """The epilogue with the commit after the region's last product, or the wait before its first
    read."""
    everywhere = (*stream.prologue, *stream.items, *stream.loop, *stream.epilogue)
    for op in everywhere:
        for values, roles, verb in (
            (op.defines, (region.producer, region.consumer), "writes"),
            (op.uses, (region.consumer,), "reads"),
        ):
            if any(v.block == region.name for v in values) and stream.role.name not in roles:
                raise ScheduleError(
                    f"{schedule.file}:{op.line} {op} of role {stream.role.name!r} {verb} "
                    f"{region.name!r}, which goes from {region.producer!r} to {region.consumer!r}"
                )
    products = [op for op in everywhere if any(v.block == region.name for v in op.defines)]
    if stream.role.name == region.producer and not all(
        op in stream.loop and op.asynchronous for op in products
    ):
        raise ScheduleError(
            f"{schedule.file}:{products[0].line} {products[0]} writes {region.name!r}; matrix "
            f"products of the tile loop do, or copies there"
        )
    if region.operand:
        return epilogue
    writers = [op for op in products if op.asynchronous]
    # What reads it in the loop relies on other waits, which the proof checks.
    readers = [op for op in epilogue if any(v.block == region.name for v in op.uses)]
    if writers:
        both = schedule.smem.pair and region.consumer not in schedule.smem.leaders
        last = replace(writers[-1], tile=None)
        return [_commit(last, region.name, region.barrier, both=both), *epilogue]
    if readers:
        index = epilogue.index(readers[0])
        context = {"barrier": region.barrier, "slot": 0, "phase": 0, "ran": True}
        wait = derived(readers[0], "wait_committed", region.name, context, "wait")
        return [*epilogue[:index], wait, *epilogue[index:]]
    return epilogue


def given_back(schedule: PipelineSchedule, stream: Stream) -> tuple[Operation, ...]:
    """The end of the allocation, in the role that reads TMEM last."""
    if stream.role.name != schedule.tmem.owner:
        return ()
    return (derived(stream.epilogue[-1], "free", "", {"columns": schedule.tmem.allocated}),)


def with_fences(
    schedule: PipelineSchedule, stream: Stream, steps: list[Operation]
) -> list[Operation]:
    """The steps with fences before arrivals and after waits, where this role and the one that it
    meets there both touch TMEM."""
    out: list[Operation] = []
    for op in steps:
        gives, takes = _meets(schedule, op)
        for others, name in ((gives, "fence_before"), ((), ""), (takes, "fence_after")):
            if not name:
                out.append(op)
            elif _in_tensor(schedule, stream, others) or (takes and _copies(schedule, stream)):
                out.append(replace(derived(op, name, "", {}), domain=op.domain))
    return out


def _meets(schedule: PipelineSchedule, op: Operation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The roles that learn from an operation what this one did, and those of which it learns."""
    smem = schedule.smem
    if op.access is not None:
        pipeline = smem.pipelines[op.access.target.ring]
        if op.access.kind == "copy":
            return pipeline.consumers, ()
        return (pipeline.producer,) if op.template not in COMMITS.values() else (), ()
    block = op.uses[0].block if op.uses else ""
    match op.name:
        case "wait_full":
            return (), (smem.pipelines[block].producer,)
        case "wait_empty":
            return (), smem.pipelines[block].released_by
        case "wait_committed":
            return (), (schedule.tmem.regions[block].producer,)
        case "arrive_full":
            return smem.pipelines[block].consumers, ()
        case "arrive":
            return (smem.exchanges[block].consumer,), ()
        case "arrive_and_wait":
            return (), (smem.exchanges[block].producer,)
    return (), ()


def _copies(schedule: PipelineSchedule, stream: Stream) -> bool:
    """Whether the role copies operands to TMEM, over those that its own products have read."""
    operands = {region.name for region in schedule.tmem.regions.values() if region.operand}
    return any(value.block in operands for op in stream.loop for value in op.defines)


def _in_tensor(schedule: PipelineSchedule, stream: Stream, others: Iterable[str]) -> bool:
    """Whether the role and one of the others both touch TMEM."""
    held = {*schedule.tmem.regions}
    held |= {p.name for p in schedule.smem.pipelines.values() if p.tensor}

    def touches(one: Stream) -> bool:
        return any(held & names_of(op) for op in (*one.loop, *one.epilogue))

    met = [other for other in schedule.streams if other.role.name in others]
    return any(map(touches, met)) and touches(stream)
