"""Which instructions matter to LDS: a backward slice from addresses, M0, EXEC and branches."""

from __future__ import annotations

from functools import cache

from mlagen.binary.effects import Access, effects, is_lds_dma, is_matrix
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import Instruction
from mlagen.binary.operand import EXEC, SCALARS

_NO_BYTES = ("permute", "swizzle", "gws_", "nop")
_EXEC_BITS = 0b11 << EXEC


def _bits(access: Access) -> int:
    first = access.base + (SCALARS if access.file == "v" else 0)
    return ((1 << access.count) - 1) << first


def is_lds_memory(ins: Instruction) -> bool:
    """True for DS instructions that touch LDS bytes (permutes and the like do not)."""
    return ins.encoding == "DS" and not any(word in ins.mnemonic for word in _NO_BYTES)


@cache
def _use(ins: Instruction, accum: int, sourced: bool) -> tuple[int, int, int, bool]:
    """(seeds, reads, writes, vector): register sets as bits. Seeds are needed in any case."""
    found = effects(ins, accum)
    reads = writes = seeds = 0
    for access in found.reads:
        if access.role != "exec":
            reads |= _bits(access)
        followed = access.role == "lds_address" or (sourced and access.role == "lds_data")
        if followed and is_lds_memory(ins):
            seeds |= _bits(access)
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
    return seeds, reads, writes, not ins.mnemonic.startswith("s_")


def relevant(flow: Flow, accum: int, sourced: bool = False) -> set[int]:
    """Indices of the instructions whose results reach an LDS address, M0, EXEC or a branch; with
    `sourced` also those that reach the address from which a load to LDS takes its bytes, or what is
    written to LDS."""
    uses = [_use(ins, accum, sourced) for ins in flow.instructions]
    # Where EXEC is ever changed, a vector write may leave lanes of what was there before.
    partial = any(writes & _EXEC_BITS for _, _, writes, _ in uses)
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
            seeds, reads, writes, vector = uses[index]
            if writes & (live | _EXEC_BITS):
                found.add(index)
                if not (partial and vector):
                    live &= ~writes
                live |= reads
            live |= seeds
        if live != live_in[at]:
            live_in[at] = live
            for before in flow.predecessors[at]:
                if before not in waiting:
                    waiting.add(before)
                    work.append(before)
    return found
