"""Which instructions matter to LDS: a backward slice from addresses, M0, EXEC and branches."""

from __future__ import annotations

from functools import cache

from mlagen.binary.effects import RegisterAccess, effects, is_lds_dma, is_matrix
from mlagen.binary.exchanges import takes_by_address
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.operand import EXEC, SCALARS

_NO_BYTES = ("permute", "swizzle", "gws_", "nop")
_EXEC_BITS = 0b11 << EXEC


def _bits(access: RegisterAccess) -> int:
    first = access.base + (SCALARS if access.file == "v" else 0)
    return ((1 << access.count) - 1) << first


def is_lds_memory(ins: MachineInstruction) -> bool:
    """True for DS instructions that touch LDS bytes (permutes and the like do not)."""
    return ins.encoding == "DS" and not any(word in ins.mnemonic for word in _NO_BYTES)


@cache
def _use(ins: MachineInstruction, accum: int, sourced: bool) -> tuple[int, int, int, bool, int]:
    """(seeds, reads, writes, vector, lanes): register sets as bits. Seeds are needed in any case,
    `lanes`, from which lane data is taken, where lanes may be off."""
    found = effects(ins, accum)
    reads = writes = seeds = lanes = 0
    for access in found.reads:
        if access.role != "exec":
            reads |= _bits(access)
        followed = access.role == "lds_address" or (sourced and access.role == "lds_data")
        if followed and is_lds_memory(ins):
            seeds |= _bits(access)
        if access.role == "lds_address" and takes_by_address(ins):
            lanes |= _bits(access)
        if access.role == "m0_lds" or (
            sourced and access.role.startswith("vmem") and is_lds_dma(ins)
        ):
            seeds |= _bits(access)
    for access in found.writes:
        writes |= _bits(access)
    if ins.mnemonic.startswith("s_cbranch"):
        seeds = reads
    if is_matrix(ins):
        reads = 0  # what tiles hold is not followed
    return seeds, reads, writes, not ins.mnemonic.startswith("s_"), lanes


def changes_exec(flow: Flow, accum: int) -> bool:
    """Whether EXEC is ever written: else all lanes are on."""
    return any(_use(ins, accum, False)[2] & _EXEC_BITS for ins in flow.instructions)


def relevant(flow: Flow, accum: int, sourced: bool = False) -> set[int]:
    """Indices of the instructions whose results reach an LDS address, M0, EXEC, a branch, or what
    says from which lanes data is taken while lanes may be off; with `sourced` also those that reach
    the address from which a load to LDS takes its bytes, or what is written to LDS."""
    uses = [_use(ins, accum, sourced) for ins in flow.instructions]
    # Where EXEC is ever changed, a vector write may leave lanes of what was there before.
    partial = changes_exec(flow, accum)
    live_in = [0] * len(flow.blocks)
    found: set[int] = set()
    work = list(reversed(range(len(flow.blocks))))
    waiting = set(work)
    while work:
        at = work.pop(0)
        waiting.discard(at)
        block = flow.blocks[at]
        live = 0
        for after in block.successors:
            live |= live_in[after]
        for index in range(block.last, block.first - 1, -1):
            seeds, reads, writes, vector, lanes = uses[index]
            if writes & (live | _EXEC_BITS):
                found.add(index)
                if not (partial and vector):
                    live &= ~writes
                live |= reads
            live |= seeds | (lanes if partial else 0)
        if live != live_in[at]:
            live_in[at] = live
            for before in flow.predecessors[at]:
                if before not in waiting:
                    waiting.add(before)
                    work.append(before)
    return found
