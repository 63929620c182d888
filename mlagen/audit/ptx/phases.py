"""mbarriers: initialisation, arrivals, phases, waits, and the fences that make them visible."""

from __future__ import annotations

import numpy as np

from mlagen.audit.ptx import fingerprints, operands
from mlagen.audit.ptx.agent import Agent, Blocked, thread_set
from mlagen.audit.ptx.barriers import Mbarrier
from mlagen.audit.ptx.lanes import all_of, split
from mlagen.audit.ptx.order import Sink
from mlagen.audit.ptx.program import WINDOW_BITS
from mlagen.audit.ptx.shared import CELL, Cells, numbers
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Lanes, Value, plain
from mlagen.ptx import Instruction, Kind, MemoryOperand, Operand
from mlagen.ptx.effects import names_in
from mlagen.targets.sm_90a.limits import SM_90A

# PTX ISA 9.0, mbarrier: "Valid Range of mbarrier object's expected arrival count 1 .. 2^20 - 1".
MAX_COUNT = SM_90A.mbarrier_arrivals_max
_SIZE = 8  # bytes of an mbarrier
_ARRIVAL = "the arrival"


def mbarriers(
    state: State, agent: Agent, instruction: Instruction, operand: Operand, lanes: Lanes
) -> list[tuple[Mbarrier, Lanes]]:
    """The mbarriers an operand names, each with the threads that name it."""
    if not isinstance(operand, MemoryOperand):
        return []
    address = operands.shared_address(state, agent, operand, lanes)
    if address is None:
        state.lose(instruction, f"the mbarrier of `{instruction.text}` is not known")
        return []
    starts = operands.each(address, lanes)
    found = []
    for start in dict.fromkeys(starts.tolist()):
        bar = _known(state, agent, instruction, start, lanes[starts == start])
        if bar:
            found.append((bar, lanes[starts == start]))
    return found


def _known(
    state: State, agent: Agent, instruction: Instruction, address: int, lanes: Lanes
) -> Mbarrier | None:
    """The mbarrier at an address; tells one that is not there, or not yet for these threads."""
    bar = state.mbarriers.get(address)
    if bar is None:
        state.tell(
            "mbarrier-uninitialised",
            agent,
            instruction,
            f"no mbarrier was initialised at {address:#x}",
            needs="mbarrier.init before",
        )
        return None
    threads = thread_set(agent.threads[lanes])
    knows = agent.knowledge(threads)
    number = bar.init.number
    mine = number in knows.own and bar.init.threads == threads
    if not (knows.over >> number & 1 or mine):
        state.tell(
            "mbarrier-visible",
            agent,
            instruction,
            f"the mbarrier at {address:#x} is used without a synchronisation after its"
            " initialisation",
            other=bar.init.instruction,
            needs="a barrier of the block after mbarrier.init",
        )
    return bar


def init(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """mbarrier.init by each active thread."""
    memory = instruction.operands[0]
    count = operands.value(state, agent, instruction.operands[1])
    if not isinstance(memory, MemoryOperand):
        return
    address = operands.shared_address(state, agent, memory, lanes)
    if address is None or not isinstance(count, int):
        state.lose(instruction, "address or count of mbarrier.init is not known")
        return
    starts = operands.each(address, lanes).tolist()
    for start, thread in zip(starts, agent.threads[lanes].tolist(), strict=True):
        if not 1 <= count <= MAX_COUNT or start % _SIZE:
            state.tell(
                "mbarrier-count",
                agent,
                instruction,
                f"count {count} at {start:#x}: counts are 1..{MAX_COUNT}, addresses multiples"
                f" of {_SIZE}",
            )
            count = max(count, 1)
        if not state.inside(agent, instruction, start, _SIZE):
            continue
        state.seen.barriers.add(start)
        event = state.event(instruction, "mbarrier.init", 1 << thread, generic=True)
        agent.did(event, False)
        fingerprints.wrote(state, agent, event, single=thread)
        low = state.setting.place(start) // CELL
        cells = Cells(
            np.array([low, low + 1]), np.array([thread, thread]), 1 << thread, low, low + 2,
            start, _SIZE,
        )  # fmt: skip
        if start in state.mbarriers:
            state.written(agent, instruction, start, _SIZE)
        clashes = state.memory.write_cells(cells, event, agent.knowledge(1 << thread))
        state.tell_clashes(agent, instruction, "mbarrier.init", clashes)
        state.mbarriers[start] = Mbarrier(start, count, event, count)


def invalidate(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """mbarrier.inval."""
    for bar, _ in mbarriers(state, agent, instruction, instruction.operands[0], lanes):
        state.mbarriers.pop(bar.address, None)


def arrive(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """mbarrier.arrive, with or without a transaction count, and arrive_drop."""
    given = list(instruction.operands)
    token = None
    if not isinstance(given[0], MemoryOperand):
        token = next(names_in(given.pop(0)), None)
    count: Value = 1
    expects: Value = 0
    if "expect_tx" in instruction.parts:
        expects = operands.value(state, agent, given[1])
    elif len(given) > 1:
        count = operands.value(state, agent, given[1])
    if not isinstance(count, int) or not isinstance(expects, int):
        state.lose(instruction, "count or bytes of the arrival are not known")
        count = count if isinstance(count, int) else 1
        expects = expects if isinstance(expects, int) else 0
    begun = len(state.events)
    for bar, subset in mbarriers(state, agent, instruction, given[0], lanes):
        if token:
            agent.registers[token] = bar.phase & 1
        if "expect_tx" in instruction.parts:
            bar.expected += expects * len(subset)
            bar.expects.append(instruction)
        threads = thread_set(agent.threads[subset])
        if "arrive_drop" in instruction.parts:
            bar.count = max(bar.count - len(subset), 0)
        _arrivals(state, agent, instruction, bar, count * len(subset), threads)
    together = [event for event in state.events[begun:] if event.what == _ARRIVAL]
    if len(together) > 1:
        all_of_it = sum(event.bit for event in together)
        for event in together:
            event.together = all_of_it


def _arrivals(
    state: State,
    agent: Agent,
    instruction: Instruction,
    bar: Mbarrier,
    number: int,
    threads: int,
    *,
    pass_on: bool = True,
) -> None:
    """`number` arrivals; those beyond a phase's count go to the next one."""
    event = state.event(instruction, _ARRIVAL, threads)
    if pass_on:
        agent.tells(instruction, state.released)
        agent.release(bar.sink, threads)
        agent.did(event, True)
        state.accesses(agent, event, bar.address >> WINDOW_BITS, "the arrival")
    while number > 0:
        _ordered(state, agent, instruction, bar, threads)
        if not bar.pending:
            state.tell(
                "mbarrier-arrivals",
                agent,
                instruction,
                f"an arrival on a phase that has all its {bar.count} arrivals"
                f" (mbarrier at {bar.address:#x})",
                other=bar.init.instruction,
                needs=f"{bar.count} arrivals a phase, or another count at initialisation",
            )
            return
        taken = min(number, bar.pending)
        bar.pending -= taken
        number -= taken
        state.seen.arrived.add(instruction.line)
        bar.arrivals.append(instruction)
        bar.came |= event.bit
        bar.sink.done[event.number] = threads
        try_complete(state, bar)


def _ordered(
    state: State, agent: Agent, instruction: Instruction, bar: Mbarrier, threads: int
) -> None:
    """An arrival knows that the phase before is complete, or it might be one of that phase. It does
    where it knows of all arrivals of that phase. (Where all were its own it waited for nobody, and
    a waiter may miss the phase.)"""
    if bar.completion is None:
        return
    knows = agent.knowledge(threads)
    if knows.over >> bar.completion.number & 1:
        return
    others = bar.made_of & ~_did(state, agent, threads)
    unknown = others & ~knows.over
    if others and not unknown:
        return
    # One instruction of a warp arrives at the mbarriers of several blocks: nobody has seen that it
    # does so with time between, though nothing but that tells of one by the other.
    nearly = bool(others) and all(
        state.events[number].together & knows.over for number in numbers(unknown)
    )
    state.tell(
        "mbarrier-order",
        agent,
        instruction,
        f"this arrival on the mbarrier at {bar.address:#x} may fall into the phase before:"
        " nothing tells this thread that it has completed",
        other=bar.completion.instruction,
        needs=f"a wait between; {bar.count} arrivals complete a phase",
        lightly=nearly,
    )


def _did(state: State, agent: Agent, threads: int) -> int:
    """Events (a set) of some threads themselves."""
    found = 0
    for number in agent.own:
        if not state.events[number].threads & ~threads:
            found |= 1 << number
    return found


def expect(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """mbarrier.expect_tx."""
    size = operands.value(state, agent, instruction.operands[1])
    if not isinstance(size, int):
        state.lose(instruction, "the expected bytes are not known")
        return
    for bar, subset in mbarriers(state, agent, instruction, instruction.operands[0], lanes):
        _ordered(state, agent, instruction, bar, thread_set(agent.threads[subset]))
        bar.expected += size * len(subset)
        bar.expects.append(instruction)


def complete_transaction(
    state: State, agent: Agent, instruction: Instruction, lanes: Lanes
) -> None:
    """mbarrier.complete_tx."""
    size = operands.value(state, agent, instruction.operands[1])
    for bar, subset in mbarriers(state, agent, instruction, instruction.operands[0], lanes):
        if isinstance(size, int):
            bar.landed += size * len(subset)
            try_complete(state, bar)


def async_arrive(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """cp.async.mbarrier.arrive: an arrival once the thread's cp.async are over. Without .noinc
    it first raises the count it then takes, so the phase's own count stays."""
    for bar, subset in mbarriers(state, agent, instruction, instruction.operands[0], lanes):
        threads = thread_set(agent.threads[subset])
        for event in agent.cp_async.all():
            bar.sink.done[event.number] = bar.sink.done.get(event.number, 0) | threads
        agent.pass_on(bar.sink, threads)
        if "noinc" in instruction.parts:
            _arrivals(state, agent, instruction, bar, len(subset), threads, pass_on=False)


def try_complete(state: State, bar: Mbarrier) -> None:
    """Ends the phase if all arrivals and bytes have come, and lets the waiting go on."""
    if not bar.full() or (state.setting.solve and bar.flying):
        return
    over, fenced = state.settle(bar.sink)
    last = (bar.arrivals or [bar.init.instruction])[-1]
    for event, waiting in bar.observers:
        if not over >> event.number & 1:
            state.tell(
                "mbarrier-overrun",
                None,
                last,
                f"the mbarrier at {bar.address:#x} completes again before a waiter is known"
                " to have seen the phase before; its parity will look unchanged",
                other=waiting,
                needs="an arrival after that wait, in this phase",
            )
    bar.completion = state.event(last, "the completion of a phase")
    # Bytes that were waited for complete a phase as well: its arrivals do not tell of them.
    bar.made_of, bar.came = (0 if bar.expects else bar.came), 0
    over |= bar.arrived
    bar.over = over | bar.completion.bit
    bar.fenced = fenced
    bar.observers = []
    bar.sink = Sink(over, fenced)
    bar.phase += 1
    bar.pending, bar.expected, bar.landed, bar.arrived = bar.count, 0, 0, 0
    bar.last_arrivals = bar.arrivals
    bar.expects, bar.arrivals = [], []
    for agent in state.agents:
        blocked = agent.blocked
        if blocked and blocked.what == "mbarrier" and blocked.target == bar.address:
            _passed(state, agent, blocked.instruction, bar, blocked.value)


def wait(state: State, agent: Agent, instruction: Instruction) -> None:
    """mbarrier.try_wait and test_wait; they may return false once, then until the phase is over."""
    result, memory = instruction.operands[:2]
    name = next(names_in(result))
    parity = plain(operands.value(state, agent, instruction.operands[2]))
    found = None
    if isinstance(memory, MemoryOperand):
        lanes = all_of(len(agent.threads))
        found = operands.shared_address(state, agent, memory, lanes)
    address = plain(found) if found is not None else None
    for varying in (address, parity):
        if isinstance(varying, np.ndarray):
            split(state, agent, varying == varying[0])
            return
    if not isinstance(parity, int) or not isinstance(address, int):
        state.lose(
            instruction,
            f"mbarrier or parity of `{instruction.text}` is not known; the wait is taken to pass"
            " and to order nothing",
        )
        agent.registers[name] = 1
        agent.pc += 1
        return
    state.parities.setdefault(instruction.index, parity & 1)
    if instruction.index == state.setting.flipped:
        parity ^= 1
    bar = _known(state, agent, instruction, address, all_of(len(agent.threads)))
    state.seen.slots.setdefault(instruction.index, set()).add(address)
    if bar is None:
        agent.registers[name] = 1
        agent.pc += 1
        return
    if agent.failed != instruction.index and (state.setting.late or not bar.passed(parity)):
        # try_wait may give up: the loop around it must come back.
        agent.failed = instruction.index
        agent.registers[name] = 0
        agent.pc += 1
        return
    if not _passed(state, agent, instruction, bar, parity):
        agent.blocked = Blocked("mbarrier", instruction, address, parity)


def _passed(
    state: State, agent: Agent, instruction: Instruction, bar: Mbarrier, parity: int
) -> bool:
    """Lets an agent through if the phase it waits for is complete."""
    if not bar.passed(parity):
        return False
    event = state.event(instruction, "the wait", agent.set)
    agent.learn(bar.over, bar.fenced)
    agent.saw(event)
    if bar.phase:
        bar.observers.append((event, instruction))
        state.seen.useful.update(arrival.line for arrival in bar.last_arrivals)
    agent.registers[next(names_in(instruction.operands[0]))] = 1
    agent.failed = -1
    agent.blocked = None
    agent.pc = instruction.index + 1
    return True


def proxy_fence(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """fence.proxy.async."""
    state.seen.fences.add(instruction.line)
    if not agent.idle_fence(state.generic):
        state.seen.effective.add(instruction.line)
    own_block_alone = any(part.endswith("shared::cta") for part in instruction.parts)
    agent.fence(state.read, state.elsewhere(agent.block) if own_block_alone else 0)


def init_fence(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """fence.mbarrier_init: the thread's initialisations are visible to asynchronous accesses."""
    state.seen.fences.add(instruction.line)
    for number, seen in agent.own.items():
        event = state.events[number].instruction
        if state.program.graph.kinds[event.index] is Kind.MBARRIER_INIT and not seen:
            state.seen.effective.add(instruction.line)
            agent.own[number] = True
