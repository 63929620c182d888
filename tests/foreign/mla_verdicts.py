"""What each sanitizer finding in AITER's mla objects is: see docs/foreign_kernels_mla.md.

A finding outside them has no verdict yet, and a test fails.
"""

from __future__ import annotations

from mlagen.binary import KernelCode
from mlagen.binary.hazards import SHIPPED_WITHOUT, strictest_pair
from mlagen.emulator import SanitizerFinding

TIGHT = "a pair that LLVM pads and AITER never does"
SHORT = "fewer wait states than LLVM pads"
LATE_OPERAND = "an operand from LDS is used before its wait"
LATE_INDEX = "a page index is used before its wait"
LATE_SCALE = "a scale is used before its wait"
REFILL = "a buffer in LDS is refilled without a barrier"
REFILL_OWN = "a buffer in LDS is refilled while the wave's own reads are outstanding"
FILL_READ_EARLY = "a load to LDS is read by another wave without a barrier after its wait"
EXCHANGE = "waves exchange data in LDS without a barrier, or without a wait before it"
SCRATCH = "LDS is used for scratch data while a load to it is outstanding"
TWICE = "two loads to LDS overlap"
PADDING_ROWS = "rows of LDS that nobody wrote are read, and not used"
UNUSED = "an undefined register is read, and not used"
OVERREAD = "Q is read past its end"
POISON_INDEX = "an address from a page index that had not arrived"


def to_lds(asm: str) -> bool:
    """Whether an instruction loads from memory to LDS."""
    return asm.endswith(" lds") or asm.startswith("global_load_lds")


def verdict(kernel: KernelCode, finding: SanitizerFinding) -> str | None:
    """The class of a finding of a kernel; None: it fits none."""
    mine, other, kind = finding.asm, finding.other_asm, finding.kind
    if kind == "wait-states":
        places = {ins.offset: ins for ins in kernel.instructions}
        if finding.other_pc is None:
            return None
        accum = kernel.descriptor.accum_offset
        pair = strictest_pair(places[finding.other_pc], places[finding.pc], accum)
        if pair[1:] in SHIPPED_WITHOUT:
            return TIGHT
        short = other.startswith("v_mfma") and mine.startswith(("v_max3", "v_mov_b32"))
        return SHORT if short or "permlane" in mine else None
    if kind == "missing-wait":
        if other.startswith("ds_read") and mine.startswith("v_mfma"):
            return LATE_OPERAND
        if other.startswith("buffer_load_dword v") and mine.startswith("v_mul"):
            return LATE_INDEX
        return LATE_SCALE if other.startswith("s_load_dword") else None
    if kind.startswith("race-"):
        dma = (to_lds(mine), to_lds(other))
        if all(dma):
            return TWICE
        if not any(dma):
            return EXCHANGE
        if "ds_write" in mine + other:
            return SCRATCH
        if finding.wave == finding.other_wave:
            return REFILL_OWN
        return REFILL if kind == "race-war" else FILL_READ_EARLY
    if kind == "undefined-register" and mine.startswith(
        ("s_mov_b32 s10,", "s_mul_i32 s56,", "v_cnd")
    ):
        return UNUSED
    if kind == "undefined-lds":
        return PADDING_ROWS
    if kind == "global-bounds" and "lds" in mine:
        return OVERREAD if "s[16:19]" in mine else POISON_INDEX
    return None


VERDICTS = {
    "W": TIGHT, "w": SHORT, "O": LATE_OPERAND, "I": LATE_INDEX, "S": LATE_SCALE, "R": REFILL,
    "r": REFILL_OWN, "F": FILL_READ_EARLY, "X": EXCHANGE, "D": SCRATCH, "T": TWICE,
    "P": PADDING_ROWS, "U": UNUSED, "Q": OVERREAD, "A": POISON_INDEX,
}  # fmt: skip


def main() -> None:
    """Prints, for each object, how many pairs of instructions of each class all modes show."""
    import aiter_mla
    import aiter_mla_prefill
    from aiter import MODES, object_file

    from mlagen.binary import load_code_object

    cases = [*aiter_mla.CASES, *aiter_mla_prefill.CASES]
    for path in dict.fromkeys(case.path for case in cases):
        kernel = load_code_object(object_file(path).read_bytes()).kernel()
        own = [case for case in cases if case.path == path]
        runs = [(mode, case.run(mode, 1)) for case in own for mode in MODES]
        pairs = {
            (f.kind, f.pc, f.other_pc): verdict(kernel, f) for _, o in runs for f in o.findings
        }
        found = list(pairs.values())
        classes = " ".join(f"{k}{found.count(v)}" for k, v in VERDICTS.items() if v in found)
        right = [sum(o.right for m, o in runs if m == mode) for mode in MODES]
        ratio = max(e.ratio for m, o in runs if m == "earliest" for e in o.errors)
        executed = sum(o.wave_instructions for m, o in runs if m == "earliest")
        name = path.removeprefix("mla/").removesuffix(".co")
        counts = " / ".join(str(count) for count in (right[1], right[0], right[2]))
        print(f"| `{name}` | {len(own)} | {counts} | {ratio:.2f} | {executed:,} | {classes} |")


if __name__ == "__main__":
    main()
