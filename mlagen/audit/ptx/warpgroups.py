"""wgmma as it runs: what it reads from shared memory and what its end teaches; setmaxnreg."""

from __future__ import annotations

from mlagen.audit.ptx import fingerprints, operands
from mlagen.audit.ptx.agent import LANES, WARPS, Agent, Blocked
from mlagen.audit.ptx.barriers import WgmmaOperation
from mlagen.audit.ptx.program import pieces
from mlagen.audit.ptx.shared import CELL
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Lanes, plain
from mlagen.audit.ptx.weak import WeakWait
from mlagen.ptx import Instruction
from mlagen.targets.sm_90a.limits import SM_90A


def issue(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """wgmma.mma_async. All four warps issue it; its reads are those of any one of them."""
    group = state.wgmma.setdefault(agent.warps[0] // WARPS, [])
    at = agent.wgmma_issued
    agent.wgmma_issued += 1
    agent.wgmma_open.append(at)
    first = at == len(group)
    if first:
        event = state.event(instruction, f"the wgmma at line {instruction.line}")
        group.append(WgmmaOperation(instruction, event))
    operation = group[at]
    if operation.instruction.index != instruction.index:
        state.tell(
            "wgmma-diverged",
            agent,
            instruction,
            "another warp of the warpgroup issues another wgmma at this point",
            other=operation.instruction,
            needs="the same sequence of wgmma in all four warps",
        )
    for warp in agent.warps:
        operation.warps |= 1 << warp % WARPS
    if not operation.settled:
        agent.release(operation.sink)
        if operation.complete:
            operation.settled = state.settle(operation.sink)
    parsed = state.program.wgmma[instruction.index]
    depth = parsed.k * parsed.element_bytes
    for operand, extent, mn_major in (
        (parsed.a, parsed.m, parsed.transposed_a),
        (parsed.b, parsed.n, parsed.transposed_b),
    ):
        if isinstance(operand, tuple):
            continue
        descriptor = plain(operands.value(state, agent, operand))
        if not isinstance(descriptor, int) or not depth:
            state.lose(
                instruction,
                f"descriptor {operand} of the wgmma is not known, so its reads are checked against"
                " none",
            )
            continue
        why, found = pieces(descriptor, extent, depth, mn_major, parsed.element_bytes)
        if why:
            state.tell("smem-alignment", agent, instruction, f"a matrix descriptor: {why}")
        _reads(state, agent, instruction, operation, found, first)


def _reads(
    state: State,
    agent: Agent,
    instruction: Instruction,
    operation: WgmmaOperation,
    found: tuple[tuple[int, int], ...],
    keep: bool,
) -> None:
    for start, size in found:
        if not state.inside(agent, instruction, start, size):
            return
        place = start + agent.block * state.setting.pitch
        fingerprints.read(
            state, agent, operation.event, slice(place // CELL, -(-(place + size) // CELL))
        )
        knows = agent.knowledge()
        clashes = state.memory.read_range(place, size, operation.event, knows, keep=keep)
        state.tell_clashes(agent, instruction, "the wgmma", clashes)


def commit(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """wgmma.commit_group."""
    agent.wgmma_groups.append(agent.wgmma_open)
    agent.wgmma_open = []


def wait(state: State, agent: Agent, instruction: Instruction) -> None:
    """wgmma.wait_group: the operations of the older groups are over, for all four warps."""
    agent.failed = -1
    pending = operands.value(state, agent, instruction.operands[0])
    count = max(len(agent.wgmma_groups) - (pending if isinstance(pending, int) else 0), 0)
    group = state.wgmma.get(agent.warps[0] // WARPS, [])
    done = [at for numbers in agent.wgmma_groups[:count] for at in numbers]
    for at in done:
        if not group[at].complete:
            agent.blocked = Blocked("wgmma", instruction, at)
            return
    for at in done:
        settled = group[at].settled
        assert settled is not None
        agent.learn(settled[0] | group[at].event.bit, settled[1])
        group[at].event.waited = instruction
    agent.forget()
    if done:
        for number in agent.loads.keys() - state.released.keys():
            agent.loads[number].long_ago = True
    agent.wgmma_groups = agent.wgmma_groups[count:]
    for younger, numbers in enumerate(reversed(agent.wgmma_groups)):
        for at in numbers:
            group[at].event.left(WeakWait(instruction, pending, younger))  # type: ignore[arg-type]
    agent.pc = instruction.index + 1


def launch_registers(state: State) -> int:
    """Registers a thread begins with. ptxas 13.0 gives what .maxnreg and so many blocks an SM as
    .minnctapersm says leave room for (their warps in fours, registers in eights), but no more than
    the largest setmaxnreg.inc names. (Without a dec an inc has no pool: it is held to that room.)
    """
    entry, limits = state.program.entry, SM_90A
    warps = -(-state.setting.threads // LANES) * max(entry.min_blocks, 1)
    fours = -(-warps // limits.warp_granule) * limits.warp_granule
    step = limits.register_granule
    share = limits.registers_per_sm // (fours * LANES) // step * step
    said = entry.max_registers or limits.registers_per_thread
    most = limits.registers_per_thread
    return min(state.program.most_registers or most, share, said, most)


def set_registers(state: State, agent: Agent, instruction: Instruction) -> None:
    """setmaxnreg: dec gives to the block's pool, inc blocks until the pool has enough."""
    wanted = instruction.operands[0]
    agent.failed = -1
    if not isinstance(wanted, int):
        agent.pc = instruction.index + 1
        return
    now = state.registers.get(agent.warps[0], launch_registers(state))
    raises = "inc" in instruction.parts
    if (wanted < now) if raises else (wanted > now):
        state.tell(
            "setmaxnreg-value",
            agent,
            instruction,
            f"{'inc' if raises else 'dec'} to {wanted} from {now} registers",
            needs="inc to raise, dec to lower",
        )
        agent.pc = instruction.index + 1
        return
    more = (wanted - now) * LANES * len(agent.warps)
    if more > state.pool.get(agent.block, 0):
        agent.blocked = Blocked("registers", instruction, 0, more)
        return
    state.pool[agent.block] = state.pool.get(agent.block, 0) - more
    for warp in agent.warps:
        state.registers[warp] = wanted
        state.register_trace.setdefault(warp, []).append(instruction.index)
    agent.pc = instruction.index + 1
