"""Arithmetic without a branch, as one step: what it computes of the same values it computes again.

Most steps of a path are additions and comparisons of slots, parities and addresses that an earlier
round, another path or another warp has computed before. A stretch of them is followed one by one
where its values are new, and afterwards its results are taken from there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import Agent
from mlagen.audit.ptx.control import compute
from mlagen.audit.ptx.program import EntryProgram, Straight
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Linear, Unknown
from mlagen.ptx import Address, Instruction, Kind, MemoryOperand, Vector

_INT64 = np.dtype(np.int64)
_KEPT = 512  # results of one stretch


def follow(state: State, agent: Agent, first: int, pc: int) -> None:
    """Goes through the arithmetic from `pc` on; `first` is where the agent was. Raises Fork at a
    decision, before which all is done."""
    program = state.program
    stretch = program.straight.get(pc)
    if stretch is None:
        stretch = program.straight[pc] = _straight(program, pc)
    places = stretch.places
    key = _key(state, agent, stretch.reads) if places else None
    found = stretch.known.get(key) if key is not None else None
    if found is None:
        _one_by_one(state, agent, first, places or (pc,))
        if key is not None:
            _keep(stretch, key, agent)
        return
    agent.pc = last = places[-1]
    state.steps += len(places) - 1
    if agent.loads:
        agent.have_read(agent.loading.along(program.routes.along(first, last)))
    agent.registers.update(found)
    agent.pc = last + 1


def _one_by_one(state: State, agent: Agent, first: int, places: tuple[int, ...]) -> None:
    program = state.program
    for pc in places:
        agent.pc = pc
        if agent.loads:
            agent.have_read(agent.loading.along(program.routes.along(first, pc)))
        compute(state, agent, program.entry.instructions[pc])
        agent.pc = first = pc + 1
    state.steps += len(places) - 1


def _keep(stretch: Straight, key: tuple[Any, ...], agent: Agent) -> None:
    if len(stretch.known) >= _KEPT:
        stretch.known.clear()
    stretch.known[key] = {name: agent.registers[name] for name in stretch.writes}


def _key(state: State, agent: Agent, reads: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The values of registers, to be compared; None where some cannot be."""
    registers, found = agent.registers, []
    for name in reads:
        value: Any = registers.get(name)
        if value is None:
            value = operands.value(state, agent, name)
        kind = type(value)
        if kind is np.ndarray:
            if value.dtype is not _INT64:
                return None
            value = value.tobytes()
        elif kind is not int and kind is not Linear and kind is not Unknown:
            return None
        found.append(value)
    return tuple(found)


def _straight(program: EntryProgram, pc: int) -> Straight:
    graph, places = program.graph, []
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    while pc < graph.end and graph.kinds[pc] is Kind.PLAIN:
        instruction = program.entry.instructions[pc]
        if not _repeats(instruction, writes):
            break
        places.append(pc)
        reads.update(dict.fromkeys(n for n in _names(instruction) if n not in writes))
        writes.update(dict.fromkeys(graph.writes[pc]))
        pc = program.next[pc + 1]
    return Straight(tuple(places), tuple(reads), tuple(writes))


def _repeats(instruction: Instruction, writes: Container[str]) -> bool:
    """Whether the values read decide the result: not those of memory, nor decisions of the path,
    which a guard, a selection and predicates made of predicates may ask for."""
    name, given = instruction.name, instruction.operands
    if instruction.guard or name == "ld" or instruction.parts[-1] == "pred":
        return False
    if any(isinstance(operand, (MemoryOperand, Address)) for operand in given):
        return False
    if name == "selp":
        return given[3] not in writes
    return name != "setp" or len(given) == 3


def _names(instruction: Instruction) -> Iterator[str]:
    for operand in instruction.operands[1:]:
        for item in operand.items if isinstance(operand, Vector) else (operand,):
            if isinstance(item, str):
                yield item.removeprefix("!")
