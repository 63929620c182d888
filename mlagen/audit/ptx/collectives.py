"""Warp-wide results (elect, shfl, vote) and bar.warp.sync."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import LANES, Agent
from mlagen.audit.ptx.order import Sink
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import UNKNOWN, Lanes, Linear, Mixed, Value, is_number, mixed, plain
from mlagen.ptx import Instruction
from mlagen.ptx.effects import names_in


def warp_barrier(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """bar.warp.sync: what one lane did or knows, all do. Warps are followed one by one where a
    kernel has it."""
    sink = Sink()
    agent.release(sink)
    agent.learn(*state.settle(sink))
    agent.forget()


def collective(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """elect, shfl, vote; match and redux are data."""
    given = instruction.operands
    results = list(names_in(given[0]))
    values: list[Value] = [UNKNOWN] * len(results)
    if instruction.name == "elect":
        warps = agent.threads // LANES
        chosen = np.zeros(len(agent.threads), np.int64)
        firsts = np.unique(warps, return_index=True)[1]
        chosen[firsts] = 1
        lane = agent.threads[firsts][np.searchsorted(warps[firsts], warps)] % LANES
        values = [plain(lane), plain(chosen)][-len(results) :]
    elif instruction.name == "shfl":
        values[0] = _shuffled(state, agent, instruction)
    elif instruction.name == "vote":
        values[0] = _voted(state, agent, instruction)
    for register, value in zip(results, values, strict=True):
        agent.registers[register] = value


def _shuffled(state: State, agent: Agent, instruction: Instruction) -> Value:
    source = operands.value(state, agent, instruction.operands[1])
    lane = plain(operands.value(state, agent, instruction.operands[2]))
    if isinstance(source, int) or (isinstance(source, Linear) and isinstance(source.constant, int)):
        return source  # all lanes hold the same
    whole = len(agent.threads) == LANES * len(agent.warps)
    if not ("idx" in instruction.parts and isinstance(lane, int) and 0 <= lane < LANES and whole):
        return UNKNOWN
    if isinstance(source, Mixed):
        return mixed([source.each[at - at % LANES + lane] for at in range(len(source.each))])
    if isinstance(source, np.ndarray):
        return plain(np.repeat(source.reshape(-1, LANES)[:, lane], LANES))
    return UNKNOWN


_VOTES: dict[str, Callable[[Lanes, Lanes], int]] = {
    "all": lambda votes, lanes: int(votes.all()),
    "any": lambda votes, lanes: int(votes.any()),
    "uni": lambda votes, lanes: int((votes == votes[0]).all()),
    "ballot": lambda votes, lanes: int((1 << lanes[votes != 0]).sum()),
}


def _voted(state: State, agent: Agent, instruction: Instruction) -> Value:
    how = next((part for part in _VOTES if part in instruction.parts), "")
    source = operands.value(state, agent, instruction.operands[1])
    if not is_number(source):
        return source if how in ("all", "any") else UNKNOWN
    if not how:
        return UNKNOWN
    every = np.broadcast_to(np.asarray(source), agent.threads.shape)
    found = np.zeros(len(agent.threads), np.int64)
    for warp in agent.warps:
        mine = agent.threads // LANES == warp
        found[mine] = _VOTES[how](every[mine], agent.threads[mine] % LANES)
    return plain(found)
