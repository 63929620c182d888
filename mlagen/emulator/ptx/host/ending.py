"""Ends of a run that are no ends: faults, deadlocks, clusters that were stopped; and parameters
that nobody set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlagen.emulator.findings import PtxFinding
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as agents
from mlagen.emulator.ptx.host.findings import MAP_RULES, ExecutedLaunch, Met, Told, shown
from mlagen.emulator.ptx.host.grid import CUT, LIMIT, ClusterEnd
from mlagen.emulator.ptx.machine import ClusterState
from mlagen.emulator.ptx.tensor import tensor_memory as tensor
from mlagen.errors import UnsupportedError
from mlagen.ptx import Instruction, MemoryOperand
from mlagen.ptx.syntax import Address
from mlagen.ptx.types import access_bytes

_SHOWN = 12  # groups of warps that a deadlock spells out


def finding_of(run: ExecutedLaunch, end: ClusterEnd) -> PtxFinding | None:
    """What a cluster's end tells; None where it came to its end. UnsupportedError for what is not
    modelled, and for a limit of instructions."""
    state = end.state
    if state is None:
        return None
    if end.code == y.R_YIELD:
        return _deadlock(run, end)
    warp = max(int(state.context[y.C_CURRENT]), 0)
    if end.code == y.R_FAULT:
        kind, told = _fault(run, state, warp)
        return run.finding(kind, told, Met(int(state.context[y.C_FAULT]), warp, end.number))
    executed = int(state.context[y.C_EXECUTED])
    block = run.setup.block_of(end.number, 0)
    if end.why == LIMIT:
        raise UnsupportedError(
            f"the cluster of block {block} has not ended after {executed} warp-instructions; the "
            f"limit is {run.setup.max_instructions}",
            hint="--max-instructions allows more",
        )
    assert end.why == CUT
    row = int(state.words(y.C_WARPS, y.W_SIZE)[warp, y.W_PC])
    text = (
        f"warp {run.warp(warp)} still runs, at {run.text(row)}, long after the first finding: the "
        f"cluster was stopped there, after {executed} warp-instructions"
    )
    told = text, "control flow", "the other findings' repairs"
    return run.finding("not-ended", told, Met(row, warp, end.number))


def _fault(run: ExecutedLaunch, state: ClusterState, warp: int) -> tuple[str, Told]:
    """Kind and words of a fault. UnsupportedError for what is not modelled."""
    row, kind = int(state.context[y.C_FAULT]), int(state.context[y.C_FAULT_KIND])
    a, b = int(state.context[y.C_FAULT_A]), int(state.context[y.C_FAULT_B])
    here = f"warp {run.warp(warp)}: {run.text(row)}"
    if kind in (y.FAULT_UNMODELLED, y.FAULT_ROOM):
        why = "needs more room than the emulator has" if kind == y.FAULT_ROOM else "is not modelled"
        raise UnsupportedError(f"{here} {why} ({a}, {b})")
    stopped = "the run was stopped there"
    if kind == y.FAULT_GLOBAL:
        name, place = run.memory.place_of(a)
        text = f"{here} accesses {place}, where it may not; {stopped}"
        return "global-bounds", (text, name, "an address inside the buffer, or another access")
    if kind == y.FAULT_SHARED:
        size = run.setup.program.dynamic + run.setup.dynamic_shared
        text = f"{here} accesses {run.shared(a, 1)}; what the block has ends at {size:#x}; "
        text += stopped
        return "shared-bounds", (text, "shared memory", "an address inside the allocation")
    if kind == y.FAULT_TRAP:
        return "trap", (f"{here} ends the kernel; {stopped}", "control flow", "")
    if kind == y.FAULT_MBARRIER:
        place = run.shared(a, 8)
        rule = agents.MISUSE.get(b, "misuse")
        return "mbarrier-misuse", (f"{here}: {rule} ({place}); {stopped}", place, "mbarrier.init")
    if kind == y.FAULT_MAP:
        where = f"dimension {a}" if b == agents.BAD_EDIT else f"{a:#x}"
        return "map-misuse", (f"{here}: {MAP_RULES[b]} ({where}); {stopped}", "", "a map that fits")
    if kind == y.FAULT_DESCRIPTOR:
        what, needs = _DESCRIPTORS[a]
        text = f"{here}: the matrix descriptor {b & (1 << 64) - 1:#018x} {what}; {stopped}"
        return "descriptor", (text, "", needs)
    if kind == y.FAULT_TENSOR:
        rule = tensor.MISUSE.get(a, "misuse")
        text = f"{here}: {rule} ({b & (1 << 64) - 1:#x}); {stopped}"
        return "tensor-misuse", (text, "tensor memory", "operands that the instruction has")
    name, what, needs = _FAULTS[kind]
    return name, (f"{here}: {what.format(a=a, b=b)}; {stopped}", "", needs)


_DESCRIPTORS = {
    y.BASE_OFFSET: ("has a base offset, which is not modelled", "a base offset of 0"),
    y.LEADS_OUT: ("leads out of shared memory", "a descriptor of the tile"),
    y.BESIDE_PATTERN: (
        "begins beside the first of the 8 rows after which its swizzle repeats",
        "a matrix at a multiple of 8 rows of the swizzle",
    ),
}
_FAULTS = {
    y.FAULT_LOCAL: ("local-bounds", "local memory at {a:#x}, outside what the thread has", ""),
    y.FAULT_PARAM: ("param-bounds", "byte {a} of the parameters, which end before it", ""),
    y.FAULT_CONST: ("const-bounds", "constant memory at {a:#x}, outside what the module has", ""),
    y.FAULT_ALIGN: ("alignment", "address {a:#x} is not aligned", "an aligned address"),
    y.FAULT_BARRIER: (
        "barrier-count",
        "barrier {a} with {b} threads: there are barriers 0 to 15, of a multiple of 32 threads",
        "a barrier and a count that exist",
    ),
}


def _deadlock(run: ExecutedLaunch, end: ClusterEnd) -> PtxFinding:
    """Who waits for what, in one finding at the first warp that waits."""
    groups: dict[tuple[int, str], list[str]] = {}
    first: tuple[int, int, int] | None = None
    for state in end.stuck:
        for warp, row, what in _waits(run, state):
            if first is None:
                first = row, warp, state.number
            name = f"{run.block(state.number, warp)}:{run.warp(warp)}"
            groups.setdefault((row, what), []).append(name)
    lines = [
        f"{run.text(row)} waits for {what}: warps {_listed(names)}"
        for (row, what), names in sorted(groups.items())[:_SHOWN]
    ]
    if len(groups) > _SHOWN:
        lines.append(f"and {len(groups) - _SHOWN} more")
    row, warp, number = first or (0, 0, end.number)
    text = "nobody can go on (warps as block:warp): " + "; ".join(lines)
    told = text, "control flow", "an arrival, or the bytes, that they wait for"
    return run.finding("deadlock", told, Met(row, warp, number))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _waits(run: ExecutedLaunch, state: ClusterState) -> Iterator[tuple[int, int, str]]:
    """(warp, row, what) of each warp and row at which some of its lanes wait."""
    for warp, words in enumerate(state.words(y.C_WARPS, y.W_SIZE)):
        if words[y.W_STATE] == y.ENDED:
            continue
        blocked = int(words[y.W_BLOCKED])
        seen: set[tuple[int, str]] = set()
        for lane in range(y.LANES):
            if blocked >> lane & 1:
                row = int(words[y.W_LANE_PC + lane])
                wait, until = int(words[y.W_WAIT + lane]), int(words[y.W_WAIT_FOR + lane])
                what = _what(run, state, wait, until)
                at = row - 1 if _past(run, row, wait >> 32) else row
                if (at, what) not in seen:
                    seen.add((at, what))
                    yield warp, at, what
        if not blocked:
            row = int(words[y.W_PC])
            yield warp, row, _asked(state, int(words[y.W_CTA]), run.instruction(row))


def _asked(state: ClusterState, cta: int, instruction: Instruction | None) -> str:
    """What a warp asks for in vain, again and again."""
    if instruction is not None and instruction.parts[:2] == ("tcgen05", "alloc"):
        return "columns of tensor memory that nobody frees"
    if instruction is not None and instruction.name == "setmaxnreg":
        free = int(state.words(y.C_CTAS, y.T_SIZE)[cta, y.T_REGISTERS]) // y.LANES
        return f"more registers than its block's pool has: {free} for each thread of one warp"
    return "something in memory that nobody writes"


def _past(run: ExecutedLaunch, row: int, wait: int) -> bool:
    """Whether lanes that wait go on after the instruction at which they wait: a barrier's do."""
    before = run.instruction(row - 1)
    at_barrier = before is not None and before.name in ("bar", "barrier")
    return wait in (y.WAIT_BARRIER, y.WAIT_CLUSTER) and at_barrier


def _what(run: ExecutedLaunch, state: ClusterState, wait: int, until: int) -> str:
    kind, number = wait >> 32, wait & 0xFFFFFFFF
    if kind == y.WAIT_MBARRIER:
        words = state.words(y.C_MBARRIERS, agents.MB_SIZE)[number]
        left = int(words[agents.MB_PENDING]), int(words[agents.MB_TX])
        return (
            f"the mbarrier in {run.shared(int(words[agents.MB_ADDRESS]), 8)}, phase "
            f"{int(words[agents.MB_PHASE])}, which misses {left[0]} arrivals and {left[1]} bytes"
        )
    if kind == y.WAIT_BARRIER:
        words = state.words(y.C_NAMED, agents.NB_SIZE)[number]
        count, arrived = int(words[agents.NB_COUNT]), int(words[agents.NB_ARRIVED])
        return f"barrier {number % agents.NAMED}, where {arrived} of {count} threads are"
    if kind == y.WAIT_CLUSTER:
        return "the cluster's barrier"
    if kind == y.WAIT_GRID:
        return "the kernel before this one"
    if kind == y.WAIT_WGMMA:
        return f"the other warps of its warpgroup to commit {until} groups of wgmma"
    return f"lanes {until:#010x} of its warp"


def unset_reads(run: ExecutedLaunch, counts: np.ndarray) -> Iterator[PtxFinding]:
    """Instructions that were executed and read parameters of which nobody set a byte. What is read
    through an address in a register counts where the address is taken."""
    program = run.setup.program
    if run.memory.given[: program.parameter_bytes].all():
        return
    for instruction in run.instructions:
        if not counts[instruction.index]:
            continue
        for name, offset, size in _parameters_read(run, instruction):
            start = program.parameters[name] + offset
            if (
                0 <= start < start + size <= program.parameter_bytes
                and not run.memory.given[start : start + size].any()
            ):
                place = f"bytes {offset}..{offset + size - 1} of parameter {name}"
                text = f"{shown(instruction)} at line {instruction.line} reads {place}, which "
                told = (text + "nobody set", place, "an argument there")
                yield run.finding("unset-argument", told, Met(instruction.index, 0, 0))


def _parameters_read(
    run: ExecutedLaunch, instruction: Instruction
) -> Iterator[tuple[str, int, int]]:
    """Parameters that an instruction names: offset and bytes of what it may read of each."""
    declared = {p.name: p.size for p in run.setup.program.entry.parameters}
    for operand in instruction.operands:
        if isinstance(operand, MemoryOperand) and operand.base in declared:
            size = declared[operand.base]
            loads = instruction.name == "ld"
            whole = max(size - operand.offset, 0)
            yield operand.base, operand.offset, access_bytes(instruction.parts) if loads else whole
        elif isinstance(operand, Address) and operand.symbol in declared:
            yield operand.symbol, operand.offset, max(declared[operand.symbol] - operand.offset, 0)
        elif isinstance(operand, str) and operand in declared:
            yield operand, 0, declared[operand]
