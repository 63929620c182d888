"""Bulk copies, tensor or plain: into shared memory, completing on an mbarrier, and out of it."""

from __future__ import annotations

import numpy as np

from mlagen.audit.ptx import fingerprints, maps, operands, phases
from mlagen.audit.ptx.agent import Agent
from mlagen.audit.ptx.barriers import Copy, Mbarrier
from mlagen.audit.ptx.program import WINDOW, WINDOW_BITS
from mlagen.audit.ptx.shared import CELL, Event, Knowledge
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Lanes, Linear, Value, take
from mlagen.ptx import Instruction, MemoryOperand, Operand
from mlagen.targets.sm_90a.limits import SM_90A

_TENSOR_ALIGN, _PLAIN_ALIGN = SM_90A.tma_smem_align, 16  # bytes, of the shared-memory address
_UNIT = 16  # bytes: sizes of plain bulk copies are multiples


def load(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.bulk into shared memory, by each active thread."""
    given = instruction.operands
    target, source = given[0], given[1]
    if not isinstance(target, MemoryOperand) or not isinstance(source, MemoryOperand):
        return
    tensor = "tensor" in instruction.parts
    for lane in lanes:
        one = np.array([lane])
        thread = int(agent.threads[lane])
        if tensor:
            maps.use(state, agent, instruction, source, thread)
        found = phases.mbarriers(state, agent, instruction, given[2 if tensor else 3], one)
        name, size = _size(state, agent, instruction, source, given, one, tensor)
        address = operands.shared_address(state, agent, target, one)
        knows = agent.knowledge(1 << thread, thread)
        start = None if address is None else int(np.asarray(address).ravel()[0])
        if start is None:
            state.lose_address(instruction)
        elif name:
            state.seen.targets.setdefault(name, set()).add(start)
        for bar, _ in found:
            _fenced(state, agent, instruction, bar, knows)
        for rank in _ranks(state, agent, instruction, one):
            event = state.event(instruction, f"the copy at line {instruction.line}")
            event.by = 1 << thread
            fingerprints.wrote(state, agent, event, single=thread)
            state.loads.append(event)
            if "shared::cta" in instruction.parts[1:] and "global" not in instruction.parts:
                _read_own(state, agent, instruction, source, one, size or 0, event, knows)
            if start is not None:
                at = _in_block(start, rank)
                state.accesses(agent, event, at >> WINDOW_BITS, "the copy")
                _write(state, agent, instruction, at, size or 0, event, knows)
            for bar, _ in found:
                there = state.mbarriers.get(_in_block(bar.address, rank), bar)
                # Whatever its thread knew to be over was so before the copy began.
                agent.pass_on(there.sink, 1 << thread)
                complete(state, there, Copy(event, size or 0, name))


def _read_own(
    state: State,
    agent: Agent,
    instruction: Instruction,
    source: MemoryOperand,
    lane: Lanes,
    size: int,
    event: Event,
    knows: Knowledge,
) -> None:
    """A copy from a block's own shared memory into another block's reads the former."""
    address = operands.shared_address(state, agent, source, lane)
    if address is None:
        state.lose_address(instruction)
        return
    start = int(np.asarray(address).ravel()[0])
    if size and state.inside(agent, instruction, start, size):
        clashes = state.memory.read_range(state.setting.place(start), size, event, knows)
        state.tell_clashes(agent, instruction, "the copy", clashes)


def _ranks(
    state: State, agent: Agent, instruction: Instruction, lane: Lanes
) -> tuple[int | None, ...]:
    """The blocks that a copy is for; None where its addresses tell."""
    if "multicast::cluster" not in instruction.parts:
        return (None,)
    at = -2 if any(part.startswith("L2::cache_hint") for part in instruction.parts) else -1
    mask = take(operands.value(state, agent, instruction.operands[at]), lane)
    if not isinstance(mask, int):
        state.lose(instruction, f"the blocks of `{instruction.text}` are not known")
        return (None,)
    return tuple(rank for rank in range(state.setting.blocks) if mask >> rank & 1)


def _in_block(address: int, rank: int | None) -> int:
    """The same place in another block's shared memory."""
    return address if rank is None else address % WINDOW + rank * WINDOW


def _write(
    state: State,
    agent: Agent,
    instruction: Instruction,
    start: int,
    size: int,
    event: Event,
    knows: Knowledge,
) -> None:
    """Bytes that a copy writes."""
    if not size or not state.inside(agent, instruction, start, size):
        return
    tensor = "tensor" in instruction.parts
    state.aligned(agent, instruction, start, _TENSOR_ALIGN if tensor else _PLAIN_ALIGN)
    state.written(agent, instruction, start, size)
    clashes = state.memory.write_range(state.setting.place(start), size, event, knows)
    state.tell_clashes(agent, instruction, "the copy", clashes)


def complete(state: State, bar: Mbarrier, copy: Copy) -> None:
    """A copy is under way that completes on an mbarrier."""
    bar.flying.append(copy)
    if not (state.setting.late or state.setting.solve or state.setting.guessed):
        _land(state, bar, copy)


def _fenced(
    state: State, agent: Agent, instruction: Instruction, bar: Mbarrier, knows: Knowledge
) -> None:
    """A copy completes on an mbarrier whose initialisation asynchronous accesses see."""
    number = bar.init.number
    if not (knows.fenced >> number & 1 or knows.own.get(number)):
        state.tell(
            "mbarrier-visible",
            agent,
            instruction,
            f"the copy completes on the mbarrier at {bar.address:#x}, whose initialisation was"
            " not fenced for asynchronous accesses",
            other=bar.init.instruction,
            needs="fence.mbarrier_init or fence.proxy.async after mbarrier.init",
            # Triton's kernels have a barrier of the block alone, and run.
            lightly=bool(knows.over >> number & 1) and bar.address >> WINDOW_BITS == agent.block,
        )


def _size(
    state: State,
    agent: Agent,
    instruction: Instruction,
    source: MemoryOperand,
    given: tuple[Operand, ...],
    lane: Lanes,
    tensor: bool,
) -> tuple[str, int | None]:
    """The box's name and the bytes of a copy; None where they are not known."""
    if tensor:
        name = box_name(operands.address(state, agent, source), source)
        return name, state.setting.boxes.get(name)
    size = take(operands.value(state, agent, given[2]), lane)
    if isinstance(size, int):
        if size % _UNIT:
            state.tell(
                "smem-alignment",
                agent,
                instruction,
                f"{size} bytes are no multiple of {_UNIT}",
                needs=f"whole {_UNIT}-byte units",
            )
        return "", size
    state.gap(f"line {instruction.line}: the size of the bulk copy is not known")
    name = f"line {instruction.line}"
    return name, state.setting.boxes.get(name)


def box_name(value: Value, memory: MemoryOperand) -> str:
    """What a tensor map is called: its parameter (and offset), or the register."""
    if isinstance(value, Linear) and len(value.terms) == 1:
        name = value.terms[0][0]
        if name[0] in ("param", "parameter", "symbol") and isinstance(value.constant, int):
            more = (name[2] if len(name) > 2 else 0) + value.constant
            return f"{name[1]}+{more}" if more else str(name[1])
    return memory.base


def _land(state: State, bar: Mbarrier, copy: Copy) -> None:
    """A copy is complete."""
    bar.flying.remove(copy)
    bar.arrived |= copy.event.bit
    if state.setting.guessed:
        return
    bar.landed += copy.size
    if bar.landed > bar.expected and not bar.pending:
        return  # told as a deadlock
    phases.try_complete(state, bar)


def land(state: State) -> bool:
    """Nothing can run: whatever is in flight lands. Whether something did."""
    moved = False
    for bar in list(state.mbarriers.values()):
        if state.setting.solve and bar.flying:
            moved |= _land_to_solve(state, bar)
            continue
        waiting = list(bar.flying)
        for copy in waiting:
            _land(state, bar, copy)
            moved = True
        if waiting and state.setting.guessed and not bar.pending:
            bar.landed = bar.expected
            phases.try_complete(state, bar)
    return moved


def _land_to_solve(state: State, bar: Mbarrier) -> bool:
    """The boxes of a phase bring what it expects: an equation."""
    if bar.pending:
        return False
    names = tuple(copy.box for copy in bar.flying if not copy.size)
    if names:
        known = sum(copy.size for copy in bar.flying) + bar.landed
        at = bar.expects[-1] if bar.expects else bar.init.instruction
        state.seen.equations.append((bar.expected - known, names, at))
    for copy in bar.flying:
        bar.arrived |= copy.event.bit
    bar.flying = []
    bar.landed = bar.expected
    phases.try_complete(state, bar)
    return True


def store(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.bulk out of shared memory, and cp.reduce.async.bulk."""
    source = next((o for o in instruction.operands[1:] if isinstance(o, MemoryOperand)), None)
    if source is None:
        return
    tensor = "tensor" in instruction.parts
    for lane in lanes:
        one = np.array([lane])
        thread = int(agent.threads[lane])
        event = state.event(instruction, f"the bulk store at line {instruction.line}")
        event.by = 1 << thread
        agent.bulk.open.append(event)
        if tensor and isinstance(instruction.operands[0], MemoryOperand):
            maps.use(state, agent, instruction, instruction.operands[0], thread)
        address = operands.shared_address(state, agent, source, one)
        if address is None:
            state.lose_address(instruction)
            continue
        start = int(np.asarray(address).ravel()[0])
        size = _stored(state, agent, instruction, one, start, tensor)
        if size and state.inside(agent, instruction, start, size):
            state.aligned(agent, instruction, start, _TENSOR_ALIGN if tensor else _PLAIN_ALIGN)
            place = state.setting.place(start)
            where = slice(place // CELL, -(-(place + size) // CELL))
            fingerprints.read(state, agent, event, where, single=thread)
            clashes = state.memory.read_range(
                place, size, event, agent.knowledge(1 << thread, thread)
            )
            state.tell_clashes(agent, instruction, "the bulk store", clashes)


def _stored(
    state: State, agent: Agent, instruction: Instruction, one: Lanes, start: int, tensor: bool
) -> int:
    """Bytes that a bulk store reads."""
    if not tensor:
        size = take(operands.value(state, agent, instruction.operands[2]), one)
        if isinstance(size, int):
            return size
        state.gap(f"line {instruction.line}: the size of the bulk store is not known")
        return state.memory.staged(state.setting.place(start))
    target = instruction.operands[0]
    assert isinstance(target, MemoryOperand)
    name = box_name(operands.address(state, agent, target), target)
    known = state.setting.boxes.get(name)
    if known is not None:
        return known
    state.seen.sources.setdefault(name, set()).add(start)
    if not state.setting.solve:
        state.gap(
            f"line {instruction.line}: the box of `{target.base}` is not known; taken to be what"
            " ordinary stores wrote from its address on"
        )
    return state.memory.staged(state.setting.place(start))


def commit(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.bulk.commit_group."""
    agent.bulk.commit()


def wait(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.bulk.wait_group: what is over has been read (and written, without `.read`). A
    thread waits for its own groups, and learns of no others."""
    pending = operands.value(state, agent, instruction.operands[0])
    for event in agent.bulk.wait(pending if isinstance(pending, int) else 0, instruction):
        agent.learn_some(event.by, event.bit)
