"""What operands hold: registers, symbols, special registers, shared-memory addresses, guards."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.audit.launch import Triple
from mlagen.audit.ptx.agent import LANES, Agent
from mlagen.audit.ptx.arithmetic import evaluate
from mlagen.audit.ptx.program import WINDOW
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import (
    GENERIC_SHARED,
    UNKNOWN,
    Compare,
    Lanes,
    Linear,
    Logic,
    Unknown,
    Value,
    add,
    is_number,
    logic,
    plain,
    scale,
    take,
    term,
)
from mlagen.ptx import Address, Instruction, Kind, MemoryOperand, Operand

# Special registers that differ between blocks or launches.
_OF_THE_LAUNCH = frozenset(
    f"%{name}"
    for name in (
        "ctaid", "nctaid", "clusterid", "nclusterid", "smid", "nsmid",
        "dynamic_smem_size", "total_smem_size",
    )
)  # fmt: skip


_OF_THE_CLUSTER = ("%cluster_ctarank", "%cluster_ctaid", "%cluster_nctarank", "%cluster_nctaid")


def value(state: State, agent: Agent, operand: Operand) -> Value:
    """The value of an operand."""
    if isinstance(operand, str):
        found = agent.registers.get(operand)
        if found is not None:
            return found
        if operand.startswith("!"):
            return evaluate(("not", "pred"), [value(state, agent, operand[1:])])
        return _named(state, agent, operand)
    if isinstance(operand, int):
        return operand
    if isinstance(operand, MemoryOperand):
        return address(state, agent, operand)
    if isinstance(operand, Address):
        return add(value(state, agent, operand.symbol), operand.offset)
    return UNKNOWN


def unknown(state: State, *name: Any) -> Value:
    """A value with a name, unless the path gives it a number."""
    return state.path.fixed[name] if name in state.path.fixed else term(*name)


def _named(state: State, agent: Agent, name: str) -> Value:
    """A symbol or special register."""
    if name in state.setting.symbols:
        return state.setting.symbols[name] + agent.block * WINDOW
    if name in state.program.sizes:
        return unknown(state, "parameter", name)
    if name.startswith("%"):
        return _special(state, agent, name)
    if name == "WARP_SZ":
        return LANES
    return UNKNOWN if name.isdigit() or "@" in name else unknown(state, "symbol", name)


def _special(state: State, agent: Agent, name: str) -> Value:
    launch = state.setting.launch
    block = launch.block or (*state.program.entry.block, 1, 1, 1)[:3]
    if not state.program.entry.block and not launch.block:
        block = (state.setting.threads, 1, 1)
    register, _, axis = name.partition(".")
    if register == "%tid":
        x, y, _ = block
        threads = agent.threads - agent.block * state.setting.stride
        by_axis = {"x": threads % x, "y": threads // x % y, "z": threads // (x * y)}
        return plain(by_axis[axis]) if axis in by_axis else UNKNOWN
    if register == "%ntid":
        return dict(zip("xyz", block, strict=True)).get(axis, UNKNOWN)
    if register == "%laneid":
        return plain(agent.threads % LANES)
    if register == "%warpid":
        return plain(agent.threads // LANES - agent.first_warp)
    if register in _OF_THE_CLUSTER:
        return _of_the_cluster(state, agent, register, axis)
    if name == "%ctaid.x" and state.setting.blocks > 1:
        cluster = unknown(state, "special", "clusterid.x")
        return add(scale(cluster, state.setting.blocks), agent.block)
    if register in _OF_THE_LAUNCH and launch.grid:
        told = _of_the_grid(launch.grid, launch.cluster or (1, 1, 1), register, axis)
        return unknown(state, "special", name.lstrip("%")) if told is None else told
    if register in _OF_THE_LAUNCH:
        return unknown(state, "special", name.lstrip("%"))
    return UNKNOWN


def _of_the_grid(grid: Triple, cluster: Triple, register: str, axis: str) -> int | None:
    """What a grid tells of a special register; None where it tells nothing."""
    if axis not in ("x", "y", "z"):
        return None
    at = "xyz".index(axis)
    blocks, clusters = grid[at], max(grid[at] // cluster[at], 1)
    if register in ("%nctaid", "%nclusterid"):
        return blocks if register == "%nctaid" else clusters
    alone = {"%ctaid": blocks, "%clusterid": clusters}.get(register, 0) == 1
    return 0 if alone else None


def _of_the_cluster(state: State, agent: Agent, register: str, axis: str) -> int:
    """Ranks and sizes; a cluster's blocks lie along x."""
    if register in ("%cluster_ctarank", "%cluster_ctaid"):
        return agent.block if axis in ("", "x") else 0
    return state.setting.blocks if axis in ("", "x") else 1


def address(state: State, agent: Agent, memory: MemoryOperand) -> Value:
    """`base + offset`."""
    base: Value = value(state, agent, memory.base) if memory.base else 0
    return add(base, memory.offset)


def shared_address(
    state: State, agent: Agent, memory: MemoryOperand, lanes: Lanes
) -> int | Lanes | None:
    """Byte address in the block's shared memory of each active thread; None: not known, or
    elsewhere."""
    found = address(state, agent, memory)
    if len(lanes) != len(agent.threads):
        found = take(found, lanes)
    if not is_number(found):
        if isinstance(found, Linear):
            state.path.leave_open(found.terms)
        return None
    if is_generic(found):
        found = found - GENERIC_SHARED  # type: ignore[operator]
    return found  # type: ignore[return-value]


def is_generic(found: Value) -> bool:
    """Whether all of it are addresses in the window of shared memory."""
    if isinstance(found, np.ndarray):
        # The first one tells of most arrays that they are not.
        return bool(found[0] >= GENERIC_SHARED and (found >= GENERIC_SHARED).all())
    return found >= GENERIC_SHARED  # type: ignore[operator]


def each(found: int | Lanes, lanes: Lanes) -> Lanes:
    """One number for each active thread."""
    if isinstance(found, np.ndarray) and found.shape == lanes.shape:
        return found
    return np.broadcast_to(np.asarray(found), lanes.shape)


def guard(state: State, agent: Agent, instruction: Instruction) -> int | Lanes:
    """The guard, for each thread or for all; unknown ones are decided."""
    assert instruction.guard is not None
    found = decided(state, agent, instruction, instruction.guard.register)
    if isinstance(found, (Unknown, Linear)):
        kind = state.program.graph.kinds[instruction.index]
        if kind in (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.ASYNC_COPY):
            return 1  # whether data moves changes no wait; taken to move
        return int(guess(state, agent, instruction))
    return holds(found, negated=instruction.guard.negated)


def holds(predicate: Value, *, negated: bool) -> int | Lanes:
    """Where a guard of a known predicate holds, 1 or 0: a text may put any number into one."""
    assert is_number(predicate)
    found = np.asarray((predicate == 0) if negated else (predicate != 0), np.int64)
    return plain(found) if found.ndim else int(found)  # type: ignore[return-value]


def decide(state: State, predicate: Value, leaving: bool | None = None) -> Value:
    """A predicate with its unknown sizes decided; UNKNOWN where data decides. Any other value stays
    as it is. `leaving`: as of `Path.decide`."""
    if isinstance(predicate, Compare):
        if isinstance(predicate.value.constant, np.ndarray):
            state.path.leave_open(predicate.value.terms)
            return UNKNOWN
        return int(state.path.decide(predicate, leaving))
    if isinstance(predicate, Logic):
        return logic(predicate.op, *(decide(state, arg) for arg in predicate.args))
    return predicate


def decided(state: State, agent: Agent, instruction: Instruction, register: str) -> Value:
    """A predicate register with its unknown sizes decided, as `decide` does."""
    leaving = state.program.leaving(register, instruction.index)
    return decide(state, value(state, agent, register), leaving)


def known(state: State, predicate: Value) -> Value:
    """A predicate that the path has settled already; UNKNOWN where deciding would part it."""
    if isinstance(predicate, Compare):
        if isinstance(predicate.value.constant, np.ndarray):
            return UNKNOWN
        found = state.path.settled(predicate)
        return UNKNOWN if found is None else int(found)
    if isinstance(predicate, Logic):
        return logic(predicate.op, *(known(state, arg) for arg in predicate.args))
    return predicate


def guess_one(state: State, agent: Agent, instruction: Instruction, last: int) -> int:
    """Which of the entries 0 to `last` an indirect branch on data takes."""
    state.gap(
        f"line {instruction.line}: `{instruction.text}` depends on data; some entries of its table"
        " were tried, all warps alike"
    )
    seen = agent.guesses.get(instruction.index, 0)
    ways = (state.path.guess(instruction.index, seen + at, False) for at in range(last))
    taken = next((at for at, way in enumerate(ways) if way), last)
    agent.guesses[instruction.index] = seen + last
    return taken


def guess(state: State, agent: Agent, instruction: Instruction) -> bool:
    """Which way a branch on data goes."""
    state.gap(
        f"line {instruction.line}: `{instruction.text}` depends on data; both ways were tried"
        " for the first two times, all warps alike"
    )
    seen = agent.guesses.get(instruction.index, 0)
    chosen = state.path.guess(instruction.index, seen, state.program.way_out(instruction.index))
    agent.guesses[instruction.index] = seen + 1
    return chosen
