"""Named barriers (bar.sync, bar.arrive, bar.red) and the CTA cluster barrier."""

from __future__ import annotations

import numpy as np

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import LANES, Agent, Blocked
from mlagen.audit.ptx.barriers import NamedBarrier
from mlagen.audit.ptx.lanes import merge, split
from mlagen.audit.ptx.order import Sink
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import UNKNOWN, plain
from mlagen.ptx import Instruction, Kind, Vector
from mlagen.targets.sm_90a.limits import SM_90A

COUNT = SM_90A.named_barriers


def barrier(state: State, agent: Agent, instruction: Instruction) -> None:
    """bar.sync / bar.arrive / bar.red. It counts whole warps, whatever lanes are active."""
    given = [x for x in instruction.operands if not isinstance(x, Vector)]
    if "red" in instruction.parts:
        given = given[1:-1]
    numbers = [plain(operands.value(state, agent, x)) for x in given]
    number = numbers[0] if numbers else 0
    count = numbers[1] if len(numbers) > 1 else state.setting.threads
    for varying in (number, count):
        if isinstance(varying, np.ndarray):
            split(state, agent, varying == varying[0])
            return
    if "red" in instruction.parts:
        for name in state.program.graph.writes[instruction.index]:
            agent.registers[name] = UNKNOWN
    if not isinstance(number, int) or not isinstance(count, int):
        state.lose(instruction, f"number or threads of `{instruction.text}` are not known")
        agent.pc += 1
        return
    if not 0 <= number < COUNT:
        state.tell(
            "bar-id", agent, instruction, f"named barrier {number}: there are 0..{COUNT - 1}"
        )
    if count % LANES or count <= 0:
        state.tell(
            "bar-count", agent, instruction, f"{count} threads: must be a multiple of {LANES}"
        )
        count = -(-max(count, 1) // LANES) * LANES
    number += COUNT * agent.block
    bar = state.bars.setdefault(number, NamedBarrier(number))
    missing = (count if not bar.arrived else bar.count) - bar.arrived
    if LANES * len(agent.warps) > missing and len(agent.warps) > 1:
        # Some of these warps complete a generation, the others begin the next.
        split(state, agent, agent.threads // LANES == agent.warps[0])
        return
    agent.failed = -1
    _join(state, agent, instruction, bar, count)
    if "arrive" in instruction.parts:
        agent.pc = instruction.index + 1
    if bar.arrived >= bar.count > 0:
        _complete(state, bar)


def _join(
    state: State, agent: Agent, instruction: Instruction, bar: NamedBarrier, count: int
) -> None:
    if bar.completion and not agent.over >> bar.completion.number & 1:
        state.tell(
            "bar-order",
            agent,
            instruction,
            f"{bar.title} may not have completed for the ones before: nothing tells this warp",
            other=bar.completion.instruction,
            needs="another barrier, or a synchronisation with those who wait on it",
        )
    if bar.arrived and bar.count != count:
        state.tell(
            "bar-count",
            agent,
            instruction,
            f"{bar.title} is used with {count} threads here and {bar.count} there",
            other=bar.first,
        )
    if not bar.arrived:
        bar.count, bar.first = count, instruction
    bar.arrived += LANES * len(agent.warps)
    agent.tells(instruction, state.released)
    agent.release(bar.sink)
    if "arrive" not in instruction.parts:
        agent.blocked = Blocked("bar", instruction, bar.number, bar.generation)


def _complete(state: State, bar: NamedBarrier) -> None:
    assert bar.first is not None
    bar.completion = state.event(bar.first, "the barrier")
    over, fenced = state.settle(bar.sink)
    bar.over, bar.fenced = over | bar.completion.bit, fenced
    bar.sink = Sink()
    bar.generation += 1
    bar.arrived = 0
    woken: dict[tuple[int, int], list[Agent]] = {}
    for agent in state.agents:
        blocked = agent.blocked
        if not blocked or blocked.what != "bar" or blocked.target != bar.number:
            continue
        agent.blocked = None
        agent.pc = blocked.instruction.index + 1
        agent.learn(bar.over, bar.fenced)
        agent.forget()
        if bar.number >= 0:
            woken.setdefault((agent.unit, agent.pc), []).append(agent)
    for together in woken.values():
        if len(together) > 1 and len({a.wgmma_issued for a in together}) == 1:
            merge(state, together)


def cluster_arrive(state: State, agent: Agent, instruction: Instruction) -> None:
    """barrier.cluster.arrive: a barrier of all threads of the cluster's blocks."""
    bar = state.bars.setdefault(-1, NamedBarrier(-1))
    agent.cluster = bar.generation
    if not bar.arrived:
        bar.count, bar.first = state.setting.threads * state.setting.blocks, instruction
    bar.arrived += len(agent.threads)
    if "relaxed" not in instruction.parts or state.program.behind_a_fence(instruction.index):
        agent.release(bar.sink)
    else:
        _release_begin(state, agent, bar.sink)
    agent.pc = instruction.index + 1
    agent.failed = -1
    if bar.arrived >= bar.count:
        _complete(state, bar)


def _release_begin(state: State, agent: Agent, sink: Sink) -> None:
    """What a relaxed arrival tells: that the block has begun, and of mbarriers that
    fence.mbarrier_init has released."""
    if state.begun:
        sink.over |= state.begun[agent.block].bit
    for number, seen in agent.own.items():
        at = state.events[number].instruction.index
        if seen and state.program.graph.kinds[at] is Kind.MBARRIER_INIT:
            sink.done[number] = sink.done_fenced[number] = agent.set


def cluster_wait(state: State, agent: Agent, instruction: Instruction) -> None:
    """barrier.cluster.wait."""
    bar = state.bars.setdefault(-1, NamedBarrier(-1))
    agent.failed = -1
    if bar.generation > agent.cluster:
        agent.learn(bar.over, bar.fenced)
        agent.forget()
        agent.pc = instruction.index + 1
    else:
        agent.blocked = Blocked("bar", instruction, bar.number, agent.cluster)
