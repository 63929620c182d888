"""What each sanitizer finding in AITER's fmha objects is: the classes of docs/foreign_kernels.md.

A finding outside them has no verdict yet, and a test fails.

    MLAGEN_AITER=.../hsa/gfx950 python tests/foreign/fmha_verdicts.py

counts the pairs of instructions of each class, over three launches in each mode.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from aiter import MODES, object_file
from aiter_fmha import NAMES, Problem, Traits, launch

from mlagen.binary import KernelCode, load_code_object
from mlagen.binary.hazards import SHIPPED_WITHOUT, strictest_pair
from mlagen.emulator import SanitizerFinding

TIGHT = "fewer wait states than LLVM pads"
LATE_WAIT = "V is used before its wait"
REFILL_V = "V is refilled without a barrier"
REFILL_K = "K is refilled without a barrier"
NEXT_TILE = "the second tile starts without a barrier"
VERDICTS = (TIGHT, LATE_WAIT, REFILL_V, REFILL_K, NEXT_TILE)

Q, K, V = "s[8:11]", "s[12:15]", "s[16:19]"  # the buffer descriptors of these kernels


def _to_lds(asm: str) -> bool:
    return asm.startswith("buffer_load_dwordx4") and asm.endswith(" lds")


def verdict(path: str, kernel: KernelCode, finding: SanitizerFinding) -> str | None:
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


def main() -> None:
    """Prints the table, and which wait states are fewer."""
    tight: Counter[tuple[str, str]] = Counter()
    print("| object |", " | ".join(VERDICTS), "|")
    print("| --- " * (len(VERDICTS) + 1) + "|")
    for name in NAMES:
        path = f"fmha_v3_fwd/{name}.co"
        code = object_file(path).read_bytes()
        kernel = load_code_object(code).kernel()
        pairs: dict[str | None, set[tuple[str, int, int | None]]] = defaultdict(set)
        for lengths in (((300, 700),), ((700, 300),), ((200, 300),)):
            for mode in MODES:
                result = launch(Problem(path, lengths), code, mode, 3)[0]
                for f in result.findings:
                    pairs[verdict(path, kernel, f)].add((f.kind, f.pc, f.other_pc))
        if None in pairs:
            raise SystemExit(f"{name}: {len(pairs[None])} pairs without a verdict")
        places = {ins.offset: ins for ins in kernel.instructions}
        for _, pc, other in pairs[TIGHT]:
            if other is not None:
                both = places[other], places[pc]
                tight[strictest_pair(*both, kernel.descriptor.accum_offset)[1:]] += 1
        print(f"| `{name}` |", " | ".join(str(len(pairs[v])) for v in VERDICTS), "|", flush=True)
    for (first, second), count in tight.most_common():
        print(f"{count} pairs: {first}, {second}")


if __name__ == "__main__":
    main()
