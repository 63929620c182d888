"""What each sanitizer finding in AITER's fmha objects is: the classes of docs/foreign_kernels.md.

A finding outside them has no verdict yet, and a test fails.
"""

from __future__ import annotations

from aiter_fmha import Traits

from mlagen.binary import KernelCode
from mlagen.binary.hazards import SHIPPED_WITHOUT, strictest_pair
from mlagen.emulator import Finding

TIGHT = "fewer wait states than LLVM pads"
LATE_WAIT = "V is used before its wait"
REFILL_V = "V is refilled without a barrier"
REFILL_K = "K is refilled without a barrier"
NEXT_TILE = "the second tile starts without a barrier"
VERDICTS = (TIGHT, LATE_WAIT, REFILL_V, REFILL_K, NEXT_TILE)

Q, K, V = "s[8:11]", "s[12:15]", "s[16:19]"  # the buffer descriptors of these kernels


def _to_lds(asm: str) -> bool:
    return asm.startswith("buffer_load_dwordx4") and asm.endswith(" lds")


def verdict(path: str, kernel: KernelCode, finding: Finding) -> str | None:
    """The class of a finding of the object; None: it fits none."""
    t = Traits.of(path)
    if finding.kind == "wait-states":
        places = {ins.offset: ins for ins in kernel.instructions}
        if finding.other_pc is None:
            return None
        pair = strictest_pair(
            places[finding.other_pc], places[finding.pc], kernel.descriptor.accum_offset
        )
        known = pair[1:] in SHIPPED_WITHOUT
        return TIGHT if known or (t.depth == 256 and pair[1:] == ("xdl16", "valu")) else None
    first, second = finding.other_asm, finding.asm
    if finding.kind == "missing-wait":
        read = first.startswith("ds_read_b64_tr_b8")
        return LATE_WAIT if t.fp8 and read and second.startswith("v_mfma") else None
    if not finding.kind.startswith("race-"):
        return None
    read, load = sorted((first, second), key=_to_lds)
    if not _to_lds(load) or finding.wave == finding.other_wave:
        return None
    if t.causal and (Q in load or Q in read):
        return NEXT_TILE
    if t.depth == 192:
        if read.startswith("ds_read_b128") and K in load:
            return REFILL_K
        return REFILL_V if read.startswith("ds_read_b64_tr") and V in load else None
    if t.fp8:
        return REFILL_V if read.startswith("ds_read_b64_tr") and V in load else None
    return NEXT_TILE if t.causal and read.startswith("ds_read_b128") and K in load else None
