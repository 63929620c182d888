"""Ordinary loads and stores of shared memory, ldmatrix and stmatrix, and cp.async."""

from __future__ import annotations

import numpy as np

from mlagen.audit.ptx import bulk, fingerprints, operands, phases
from mlagen.audit.ptx.agent import LANES, Agent, thread_set
from mlagen.audit.ptx.arithmetic import wrap
from mlagen.audit.ptx.barriers import Copy
from mlagen.audit.ptx.program import WINDOW_BITS
from mlagen.audit.ptx.shared import CELL, Cells, Event, Stored
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import (
    UNKNOWN,
    Lanes,
    Unknown,
    Value,
    expanded,
    is_number,
    take,
    term,
)
from mlagen.ptx import Instruction, Kind, MemoryOperand, Operand, Vector
from mlagen.ptx.types import bits_of

_ROW = 16  # bytes of a matrix row, ldmatrix and stmatrix


def _cells(
    state: State,
    agent: Agent,
    instruction: Instruction,
    lanes: Lanes,
    memory: MemoryOperand,
    size: int,
) -> Cells | None:
    """What `size` bytes at every thread's address are; None where that is not known."""
    kind = state.program.graph.kinds[instruction.index]
    address = operands.shared_address(state, agent, memory, lanes)
    if address is None:
        if kind in (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.ASYNC_COPY, Kind.OPAQUE):
            state.lose_address(instruction)
        return None
    starts = operands.each(address, lanes)
    if kind in (Kind.GENERIC_LOAD, Kind.GENERIC_STORE):
        raw = operands.address(state, agent, memory)
        if not (is_number(raw) and operands.is_generic(raw)):
            return None
    threads = agent.threads[lanes]
    key = (size, starts.tobytes(), threads.tobytes())
    found = state.program.cells.get(key)
    if found is None:
        span = np.arange(max(-(-size // CELL), 1))
        places = state.setting.place(starts)
        cells = (places[:, None] // CELL + span[None, :]).ravel()
        found = state.program.cells[key] = Cells(
            cells=cells,
            threads=np.repeat(threads, len(span)),
            set=thread_set(threads),
            low=int(cells.min()),
            high=int(cells.max()) + 1,
            start=int(starts.min()),
            size=int(starts.max() - starts.min()) + size,
        )
    return found if state.inside(agent, instruction, found.start, found.size) else None


def _rows(agent: Agent, instruction: Instruction, lanes: Lanes) -> Lanes:
    """Threads whose addresses ldmatrix / stmatrix use: 8 for each matrix."""
    count = next((int(p[1:]) for p in instruction.parts if p in ("x1", "x2", "x4")), 1)
    return lanes[agent.threads[lanes] % LANES < 8 * count]


def _accessed(
    state: State, agent: Agent, instruction: Instruction, lanes: Lanes, memory: MemoryOperand
) -> Cells | None:
    if instruction.name in ("ldmatrix", "stmatrix"):
        lanes = _rows(agent, instruction, lanes)
        return _cells(state, agent, instruction, lanes, memory, _ROW)
    width = state.program.widths[instruction.index]
    return _cells(state, agent, instruction, lanes, memory, width)


def load(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """ld.shared, ldmatrix and loads through generic addresses."""
    for name in state.program.graph.writes[instruction.index]:
        agent.registers[name] = UNKNOWN
    memory = instruction.operands[1]
    if not isinstance(memory, MemoryOperand):
        return
    found = _accessed(state, agent, instruction, lanes, memory)
    if found is None:
        return
    if instruction.name == "ld" and state.program.steering.intersection(
        state.program.graph.writes[instruction.index]
    ):
        _loaded(state, agent, instruction, found, _starts(state, agent, memory, lanes))
    event = state.event(instruction, f"the {instruction.name} of {agent.who}", found.set)
    if state.setting.blocks > 1:
        state.accesses(agent, event, found.start >> WINDOW_BITS, f"the {instruction.name}")
    fingerprints.read(state, agent, event, found.cells)
    clashes = state.memory.read_cells(found, event, agent.knowledge(found.set))
    agent.loads_to(event, state.program.graph.writes[instruction.index])
    state.read |= event.bit
    state.tell_clashes(agent, instruction, instruction.name, clashes)


def store(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """st.shared, stmatrix and stores through generic addresses."""
    memory = instruction.operands[0]
    if not isinstance(memory, MemoryOperand):
        return
    found = _accessed(state, agent, instruction, lanes, memory)
    if found is not None:
        event = _write(state, agent, instruction, found, instruction.name)
        agent.did(event, False)
        if state.program.holds:
            _hold(state, agent, instruction, found, event, lanes)


def _each_of(
    state: State, instruction: Instruction, operand: Operand
) -> tuple[tuple[Operand, ...], int]:
    """The registers and numbers of an access, and the bytes of each."""
    each = operand.items if isinstance(operand, Vector) else (operand,)
    return tuple(each), state.program.widths[instruction.index] // max(len(each), 1)


def _hold(
    state: State, agent: Agent, instruction: Instruction, found: Cells, event: Event, lanes: Lanes
) -> None:
    """Keeps what a store wrote, where it may steer whoever loads it."""
    given, size = _each_of(state, instruction, instruction.operands[1])
    if instruction.name != "st" or size < CELL or state.program.holds.isdisjoint(given):
        return
    cells = found.cells.reshape(len(lanes), -1)[:, :: size // CELL]
    for at, operand in enumerate(given):
        each = expanded(take(operands.value(state, agent, operand), lanes), len(lanes))
        for cell, value in zip(cells[:, at].tolist(), each, strict=True):
            state.memory.held[cell * CELL] = Stored(event.number, value, size)


def _loaded(
    state: State,
    agent: Agent,
    instruction: Instruction,
    found: Cells,
    starts: Lanes,
) -> None:
    """What a load reads, of which each thread begins at one of `starts`: the values that were
    stored there; of one place that holds none, a name for what whoever reads it before the next
    write reads as well."""
    given, size = _each_of(state, instruction, instruction.operands[0])
    letter = bits_of(instruction.parts)[0]
    for at, operand in enumerate(given):
        if operand not in state.program.steering:
            continue
        places = starts + at * size
        one = places[:1] if (places == places[0]).all() else places
        values = [_held(state, place, size, letter) for place in one.tolist()]
        if len(values) == 1:
            number = int(state.memory.writer[int(one[0]) // CELL])
            (value,) = values
            if number >= 0 and size >= CELL and isinstance(value, Unknown):
                line = state.events[number].instruction.line
                value = term("stored", line, number, int(one[0]))
            agent.registers[str(operand)] = value
        elif len(starts) == len(agent.threads) and all(isinstance(v, int) for v in values):
            agent.registers[str(operand)] = np.array(values, np.int64)


def _held(state: State, place: int, size: int, letter: str) -> Value:
    """What was stored last at a place, or a part of it; UNKNOWN where that is not known."""
    number = int(state.memory.writer[place // CELL])
    for start in dict.fromkeys((place, place // CELL * CELL)):
        stored = state.memory.held.get(start)
        if number < 0 or stored is None or stored.number != number:
            continue
        if start == place and stored.size == size:
            return stored.value
        if isinstance(stored.value, int) and place + size <= start + stored.size:
            return wrap(stored.value >> 8 * (place - start), letter, 8 * size)
    return UNKNOWN


def _starts(state: State, agent: Agent, memory: MemoryOperand, lanes: Lanes) -> Lanes:
    """The place at which each thread's access begins, whose addresses are known."""
    address = operands.shared_address(state, agent, memory, lanes)
    assert address is not None
    return state.setting.place(operands.each(address, lanes))


def _write(state: State, agent: Agent, instruction: Instruction, found: Cells, name: str) -> Event:
    event = state.event(instruction, f"the {name} of {agent.who}", found.set, generic=True)
    if state.setting.blocks > 1:
        state.accesses(agent, event, found.start >> WINDOW_BITS, f"the {name}")
    fingerprints.wrote(state, agent, event)
    state.written(agent, instruction, found.start, found.size)
    clashes = state.memory.write_cells(found, event, agent.knowledge(found.set))
    if state.program.widths[instruction.index] < CELL:
        # Neighbouring threads write parts of a cell.
        clashes = [clash for clash in clashes if clash.earlier.instruction is not instruction]
    state.tell_clashes(agent, instruction, name, clashes)
    return event


def opaque(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """Accesses to the shared memory of a cluster's blocks; others are not modelled, by name."""
    if "shared::cluster" in instruction.parts and instruction.name in ("ld", "st"):
        if "async" in instruction.parts:
            _store_async(state, agent, instruction, lanes)
        elif instruction.name == "ld":
            load(state, agent, instruction, lanes)
        else:
            store(state, agent, instruction, lanes)
        return
    if instruction.name == "cp" and "bulk" in instruction.parts:
        bulk.load(state, agent, instruction, lanes)
        return
    for name in state.program.graph.writes[instruction.index]:
        agent.registers[name] = UNKNOWN
    if instruction.name in ("atom", "red"):
        _atomic(state, agent, instruction, lanes)
    state.lose(
        instruction, f"what `{instruction.opcode}` does to shared memory is ordered with nothing"
    )


def _atomic(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """An atomic on shared memory: of another block, that block has to be there."""
    memory = next((x for x in instruction.operands if isinstance(x, MemoryOperand)), None)
    if memory is None:
        return
    width = state.program.widths[instruction.index]
    found = _cells(state, agent, instruction, lanes, memory, width)
    if found is not None:
        event = state.event(instruction, f"the {instruction.name} of {agent.who}", found.set)
        agent.did(event, True)
        state.accesses(agent, event, found.start >> WINDOW_BITS, f"the {instruction.name}")


def _store_async(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """st.async: a store to any block of the cluster that completes on an mbarrier there."""
    target, barrier = instruction.operands[0], instruction.operands[2]
    if not isinstance(target, MemoryOperand):
        return
    size = state.program.widths[instruction.index]
    for bar, subset in phases.mbarriers(state, agent, instruction, barrier, lanes):
        found = _cells(state, agent, instruction, subset, target, size)
        if found is None:
            continue
        event = state.event(instruction, f"the st.async of {agent.who}", generic=True)
        event.by = found.set
        state.accesses(agent, event, found.start >> WINDOW_BITS, "the st.async")
        fingerprints.wrote(state, agent, event)
        state.written(agent, instruction, found.start, found.size)
        clashes = state.memory.write_cells(found, event, agent.knowledge(found.set))
        state.tell_clashes(agent, instruction, "st.async", clashes)
        state.loads.append(event)
        agent.pass_on(bar.sink, found.set)  # its completion releases what came before it
        bulk.complete(state, bar, Copy(event, size * len(subset), ""))


def async_copy(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async: an ordinary write that its thread does not wait for."""
    target, size = instruction.operands[0], instruction.operands[2]
    if not isinstance(target, MemoryOperand) or not isinstance(size, int):
        return
    found = _cells(state, agent, instruction, lanes, target, size)
    if found is None:
        return
    event = _write(state, agent, instruction, found, "cp.async")
    event.by = found.set
    agent.cp_async.open.append(event)
    state.loads.append(event)


def async_commit(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.commit_group."""
    agent.cp_async.commit()


def async_wait(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.wait_group and wait_all."""
    pending: Value = 0
    if "wait_all" in instruction.parts:
        agent.cp_async.commit()
    else:
        pending = operands.value(state, agent, instruction.operands[0])
    for event in agent.cp_async.wait(pending if isinstance(pending, int) else 0, instruction):
        agent.did(event, False)
