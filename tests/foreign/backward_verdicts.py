"""What the sanitizer's findings in AITER's fmha_v3_bwd and pa objects are.

The classes are described, place by place, in docs/foreign_kernels_bwd_pa.md.
"""

from __future__ import annotations

from pathlib import Path

from mlagen.emulator import SanitizerFinding

TIGHT = "fewer wait states than LLVM pads"
SAME_BYTES = "two waves load the same bytes of LSE and D to LDS"
UNUSED = "a descriptor's half that no path uses before it is set"
NEXT_TILE = "the second tile starts without a barrier"
NEXT_Q = "LDS is written again without a barrier"
BEYOND = "rows beyond the last key are stored"
LATE_WAIT = "P or block numbers are used without a wait"

# By how the stem begins; the mask and the rest decide further down.
_WIDE = ("bwd_hd128_", "bwd_hd192_128_")


def verdict(path: str, finding: SanitizerFinding) -> str | None:
    """The class of a finding, None for an unknown one."""
    stem, kind = Path(path).stem, finding.kind
    if kind == "wait-states":
        return TIGHT
    if stem.startswith("pa_"):
        return LATE_WAIT if kind == "missing-wait" else None
    if kind == "race-waw":
        loads = finding.pc == finding.other_pc and finding.asm.startswith("buffer_load_dword ")
        return SAME_BYTES if loads and finding.asm.endswith(" lds") else None
    if kind == "undefined-register" and stem.startswith(_WIDE) and "causal" not in stem:
        return UNUSED if finding.asm.startswith("s_cselect_b32") else None
    if kind == "global-bounds" and stem.startswith("bwd_hd128_") and "_causal_br_" in stem:
        stores = finding.asm.startswith("buffer_store_dwordx4")
        return BEYOND if stores and finding.resource in ("buffer dK", "buffer dV") else None
    if kind in ("race-war", "race-raw"):
        if stem.startswith("bwd_hd128_") and "_causal_" in stem:
            return NEXT_TILE
        if stem.startswith("bwd_hd64_") and "_a16" in stem and kind == "race-war":
            return NEXT_Q
    return None
