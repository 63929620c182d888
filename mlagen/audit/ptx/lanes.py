"""Threads that part and meet: agents split over a guard, and merge at warp-wide instructions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import LANES, Agent, Blocked, thread_set
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Lanes, plain
from mlagen.ptx import Instruction, Kind

_FULL = (1 << LANES) - 1


def split(state: State, agent: Agent, mask: Lanes) -> tuple[Agent, Agent]:
    """Replaces an agent by two: the threads of `mask`, and the others."""
    live = state.program.live[agent.pc]
    yes, no = (agent.part(np.flatnonzero(among), live) for among in (mask, ~mask))
    at = state.agents.index(agent)
    state.agents[at : at + 1] = [yes, no]
    return yes, no


def merge(state: State, parts: list[Agent]) -> Agent:
    """Replaces agents by one."""
    merged = Agent.merge(parts, state.program.live[parts[0].pc])
    at = state.agents.index(parts[0])
    state.agents[at] = merged
    for part in parts[1:]:
        state.agents.remove(part)
    return merged


def meet(state: State, agent: Agent, instruction: Instruction) -> Agent | None:
    """The agent to execute a warp-wide instruction, once all live lanes of its warps that it
    names are here; None until then. Warps that are complete do not wait for others."""
    mates = [a for a in state.agents if a.unit == agent.unit and a is not agent]
    if not mates:
        agent.blocked = None
        return agent
    mask = _members(state, agent, instruction)
    here = [agent]
    absent: list[Agent] = []
    for mate in mates:
        if mask != _FULL and not thread_set(mate.threads % LANES) & mask:
            continue
        waits = mate.blocked is not None and mate.blocked.what == "lanes"
        (here if waits and mate.pc == agent.pc else absent).append(mate)
    missing = set(agent.warps).intersection(w for a in absent for w in a.warps)
    if missing:
        late = np.isin(agent.threads // LANES, list(missing))
        if not late.all():
            waiting, _ = split(state, agent, late)
            waiting.blocked = Blocked("lanes", instruction)
            return None
        agent.blocked = Blocked("lanes", instruction)
        return None
    # Those here whose own warps are all here as well.
    ready = [a for a in here if a is agent or not any(set(a.warps) & set(b.warps) for b in absent)]
    if len(ready) == 1:
        agent.blocked = None
        return agent
    return merge(state, ready)


def _members(state: State, agent: Agent, instruction: Instruction) -> int:
    if state.program.graph.kinds[instruction.index] in (Kind.COLLECTIVE, Kind.WARP_BARRIER):
        mask = plain(operands.value(state, agent, instruction.operands[-1]))
        if isinstance(mask, int):
            return mask & _FULL or _FULL
    return _FULL


@lru_cache(maxsize=64)
def all_of(count: int) -> Lanes:
    """Indices of all threads of an agent."""
    found = np.arange(count)
    found.setflags(write=False)
    return found


def active(state: State, agent: Agent, instruction: Instruction, whole: bool) -> Lanes | None:
    """Indices of the threads whose guard holds; None if the agent was split over it, which it
    is where the instruction is one of `whole` agents."""
    everyone = all_of(len(agent.threads))
    if instruction.guard is None:
        return everyone
    value = operands.guard(state, agent, instruction)
    if isinstance(value, int):
        return everyone if value else everyone[:0]
    if whole:
        split(state, agent, value != 0)
        return None
    return np.flatnonzero(value)
