"""One block, followed along one path: the turns of its threads, and the state they share.

Numbers are followed as far as addresses, counts and parities need them; data is not. Whether two
accesses are ordered is decided from what waits teach (see `shared`), so one interleaving speaks for
all of them; that arrivals are themselves ordered is a rule of its own (`mbarrier-order`,
`bar-order`), without which that would not hold.

What each instruction does is in the modules of its kind: `accesses`, `phases`, `bulk`, `named`,
`warpgroups`, `collectives`. A step either happens as a whole or raises `Fork` before it changed
anything, so a run can be copied at a decision and go on both ways.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlagen.audit.ptx import (
    accesses,
    bulk,
    collectives,
    control,
    ending,
    lanes,
    maps,
    named,
    phases,
    straight,
    warpgroups,
)
from mlagen.audit.ptx.agent import LANES, Agent
from mlagen.audit.ptx.paths import Path, Stuck
from mlagen.audit.ptx.program import EntryProgram, Handlers, Setting
from mlagen.audit.ptx.state import PathsSeen, State
from mlagen.audit.ptx.values import Lanes
from mlagen.ptx import Instruction, Kind

MAX_STEPS = 200_000  # of a block, on one path; the longest seen takes 100 333
# Where only the boxes' bytes are looked for, paths of many rounds end early.
_SOLVING = 50_000
_FEW = 2  # rounds

# Warp-wide instructions: all lanes of the warp must come to the same one.
_WARP_WIDE = {
    Kind.WGMMA,
    Kind.WGMMA_FENCE,
    Kind.WGMMA_COMMIT,
    Kind.WGMMA_WAIT,
    Kind.BARRIER,
    Kind.WARP_BARRIER,
    Kind.COLLECTIVE,
    Kind.REGISTERS,
}

# Groups are a thread's own: threads of which a guard lets some commit or wait part.
_BY_THREAD = {Kind.ASYNC_COMMIT, Kind.ASYNC_WAIT, Kind.BULK_COMMIT, Kind.BULK_WAIT}

# Instructions that say themselves where the agent goes next.
_MOVING: dict[Kind, Callable[[State, Agent, Instruction], None]] = {
    Kind.EXIT: ending.leave,
    Kind.TRAP: ending.leave,
    Kind.TABLE_BRANCH: control.table,
    Kind.MBARRIER_WAIT: phases.wait,
    Kind.BARRIER: named.barrier,
    Kind.CLUSTER_ARRIVE: named.cluster_arrive,
    Kind.CLUSTER_WAIT: named.cluster_wait,
    Kind.WGMMA_WAIT: warpgroups.wait,
    Kind.REGISTERS: warpgroups.set_registers,
}
# The others, for the lanes whose guard holds.
_ACTING: dict[Kind, Callable[[State, Agent, Instruction, Lanes], None]] = {
    Kind.SHARED_LOAD: accesses.load,
    Kind.SHARED_STORE: accesses.store,
    Kind.GENERIC_LOAD: accesses.load,
    Kind.GENERIC_STORE: accesses.store,
    Kind.OPAQUE: accesses.opaque,
    Kind.ASYNC_COPY: accesses.async_copy,
    Kind.ASYNC_COMMIT: accesses.async_commit,
    Kind.ASYNC_WAIT: accesses.async_wait,
    Kind.ASYNC_ARRIVE: phases.async_arrive,
    Kind.MBARRIER_INIT: phases.init,
    Kind.MBARRIER_INVALIDATE: phases.invalidate,
    Kind.MBARRIER_ARRIVE: phases.arrive,
    Kind.MBARRIER_EXPECT: phases.expect,
    Kind.MBARRIER_COMPLETE: phases.complete_transaction,
    Kind.BULK_LOAD: bulk.load,
    Kind.BULK_STORE: bulk.store,
    Kind.BULK_COMMIT: bulk.commit,
    Kind.BULK_WAIT: bulk.wait,
    Kind.PROXY_FENCE: phases.proxy_fence,
    Kind.INIT_FENCE: phases.init_fence,
    Kind.MAP_EDIT: maps.edit,
    Kind.MAP_FENCE: maps.fence,
    Kind.WARP_BARRIER: collectives.warp_barrier,
    Kind.WGMMA: warpgroups.issue,
    Kind.WGMMA_COMMIT: warpgroups.commit,
    Kind.COLLECTIVE: collectives.collective,
}


def _handlers(kind: Kind) -> Handlers:
    """Whether an instruction is warp-wide, whether threads part at its guard, and what follows it,
    by its kind."""
    wide, moving = kind in _WARP_WIDE, _MOVING.get(kind)
    return wide, wide or kind in _BY_THREAD or moving is not None, moving, _ACTING.get(kind)


class Cta:
    """A run. `run()` follows all threads to their end, or to a deadlock."""

    def __init__(self, state: State) -> None:
        self.state = state

    @staticmethod
    def begin(program: EntryProgram, setting: Setting, path: Path, seen: PathsSeen) -> Cta:
        """A block before its first instruction."""
        if not program.handlers:
            program.handlers = tuple(map(_handlers, program.graph.kinds))
        state = State(program, setting, path, seen)
        path.blocks = setting.blocks
        unit, stride = program.unit, setting.stride
        if setting.blocks > 1:
            start = program.entry.instructions[0]
            state.begun = [state.event(start, "its begin") for _ in range(setting.blocks)]
        state.agents = [
            Agent(
                (block * stride + first) // unit,
                np.arange(first, min(first + unit, setting.threads)) + block * stride,
                block=block,
                first_warp=block * stride // LANES,
                over=state.begun[block].bit if state.begun else 0,
            )
            for block in range(setting.blocks)
            for first in range(0, setting.threads, unit)
        ]
        return Cta(state)

    def clone(self) -> Cta:
        """The same run, to go on another way."""
        return Cta(self.state.clone())

    def run(self) -> None:
        """Follows the path to its end. Raises Fork at an open decision, with nothing changed
        since; call it again to go on."""
        state = self.state
        while state.agents:
            moved = False
            for agent in sorted(state.agents, key=self._turn):
                if agent in state.agents:
                    moved |= self._advance(agent)
            if state.moved:
                # Moves of a turn that a fork interrupted.
                moved, state.moved = True, False
            if not moved and not bulk.land(state):
                ending.stuck(state)
                return
        ending.finish(state)

    def _turn(self, agent: Agent) -> tuple[int, int, int]:
        """Single threads go before the rest of their unit, which soon has to wait for them."""
        unit = -agent.unit if self.state.setting.reverse else agent.unit
        return (unit, len(agent.threads), int(agent.threads[0]))

    def _advance(self, agent: Agent) -> bool:
        """Runs an agent until it blocks; whether it moved."""
        state = self.state
        if agent.blocked is not None and not self._wake(agent):
            return False
        moved = False
        while agent.blocked is None and agent in state.agents:
            before = agent.pc
            self._step(agent)
            if agent.blocked is None or agent.pc != before or agent not in state.agents:
                moved = state.moved = True
        return moved

    def _step(self, agent: Agent) -> None:
        state, program = self.state, self.state.program
        state.steps += 1
        solving = state.setting.solve and state.path.trips > _FEW
        if state.steps > (_SOLVING if solving else MAX_STEPS) * state.setting.blocks:
            raise Stuck
        first, pc = agent.pc, program.next[agent.pc]
        kind = program.graph.kinds[pc] if pc < program.graph.end else None
        if kind is Kind.PLAIN:
            straight.follow(state, agent, first, pc)
            return
        agent.pc = pc
        if agent.loads:
            agent.have_read(agent.loading.along(program.routes.along(first, pc)))
        if kind is None:
            ending.leave(state, agent, None)
            return
        instruction = program.entry.instructions[pc]
        if kind is Kind.BRANCH:
            agent.have_read(agent.loading.branch())
            control.branch(state, agent, instruction)
            return
        state.reached.add(pc)
        wide, parting, moving, acting = program.handlers[pc]
        if wide or instruction.name in ("ldmatrix", "stmatrix"):
            met = lanes.meet(state, agent, instruction)
            if met is None:
                return
            agent = met
        active = lanes.active(state, agent, instruction, parting)
        if active is None:
            return  # split; the parts go on by themselves
        if not active.size:
            agent.pc = pc + 1
        elif moving:
            moving(state, agent, instruction)
        else:
            if kind is not Kind.COLLECTIVE:
                agent.failed = -1
            if acting:
                acting(state, agent, instruction, active)
            agent.pc = pc + 1

    def _wake(self, agent: Agent) -> bool:
        """Whether a blocked agent can go on (mbarriers and named barriers wake by themselves)."""
        blocked = agent.blocked
        assert blocked is not None
        if blocked.what == "lanes":
            return lanes.meet(self.state, agent, blocked.instruction) is not None
        if blocked.what == "wgmma":
            operations = self.state.wgmma[agent.threads[0] // (4 * LANES)]
            if operations[blocked.target].complete:
                agent.blocked = None
                return True
        if blocked.what == "registers" and blocked.value <= self.state.pool.get(agent.block, 0):
            agent.blocked = None
            return True
        return False
