"""Loads to LDS that come late after a barrier, for reads which were issued before it.

A barrier does not wait for LDS reads: another wave's load to LDS, behind it, may overwrite what a
read is on its way to, and nothing orders the two (CDNA4 ISA guide, S_BARRIER). A kernel of
Composable Kernel that did so, its copies right behind the barrier, failed in half of its runs
(rocm-libraries pull request 10653; on gfx1250). AITER's attention kernels do so too, with matrix
instructions in between, and are right.
"""

from __future__ import annotations

from mlagen.binary.effects import is_lds_dma, is_matrix
from mlagen.binary.flow import Flow
from mlagen.binary.hazards import passes_of
from mlagen.targets.gfx950.limits import GFX950

_READ = GFX950.wave_size * 16 // 128  # cycles of a read of 16 bytes a lane, at 128 bytes a cycle
_PASS = 4  # cycles
DRAINED = GFX950.lgkmcnt_max * _READ
"""Cycles of as many reads as a wave's counter tells apart."""


def late_copies(flow: Flow) -> frozenset[int]:
    """Byte offsets of the loads to LDS before which, on every way from a barrier, there are matrix
    instructions of at least DRAINED cycles."""
    least = [DRAINED] * len(flow.blocks)  # cycles since a barrier, at the start of each block
    late: dict[int, bool] = {}
    waiting = list(reversed(flow.order))
    while waiting:
        block = flow.blocks[waiting.pop()]
        since = least[block.index]
        for ins in flow.instructions[block.first : block.last + 1]:
            if ins.mnemonic == "s_barrier":
                since = 0
            elif is_matrix(ins):
                since = min(since + _PASS * passes_of(ins), DRAINED)
            elif is_lds_dma(ins):
                late[ins.offset] = since == DRAINED
        for after in block.successors:
            if since < least[after]:
                least[after] = since
                waiting.append(after)
    return frozenset(offset for offset, is_late in late.items() if is_late)
