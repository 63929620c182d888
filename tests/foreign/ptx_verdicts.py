"""FlashMLA's kernels as PTX, compiled outside the repository, and what the audit's and the
emulator's findings in them are (docs/foreign_ptx.md).

`MLAGEN_FOREIGN_PTX` names the folder. The files are those of deepseek-ai/FlashMLA at 9241ae3.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "MLAGEN_FOREIGN_PTX"

# Rule, severity and the opcodes of both instructions -> the class on the page.
NO_FENCE = "no proxy fence after cp.async"
NO_FENCE_REMOTE = "no proxy fence after st.async"
UNWAITED_STORE = "the end does not wait for the output's store"
EMPTY_RANGE = "a request without a block of keys, or no request"
RELAXED_END = "a relaxed arrival before a block's end"
UNCOPIED = "a box that is expected and not copied"  # open: the page says why
NO_BARRIER = "stores of a warpgroup before its wgmma, without a barrier"
OTHER_LANES = "tcgen05.ld that names lane 0 in every warp"
EARLY_USE = "registers of tcgen05.ld are put together before its wait"
SUMS_OVER_MAXIMA = "row sums are stored over maxima that another warp has yet to read"


@dataclass(frozen=True)
class Kernel:
    """A file, its launch, and the classes of findings that it may have."""

    file: str
    shared_bytes: int
    blocks: int
    classes: frozenset[str]
    whole: bool = False  # its audit ends by itself, and all classes are found


PREFILL = frozenset((NO_FENCE, UNWAITED_STORE))
KERNELS = (
    Kernel("sm90_sparse_prefill_k576", 230864, 1, PREFILL, True),
    Kernel("sm90_sparse_prefill_k512", 214480, 1, PREFILL, True),
    Kernel(
        "sm90_sparse_decode_v32_h64", 231424, 1,
        frozenset((EMPTY_RANGE, UNWAITED_STORE)),
    ),
    Kernel(
        "sm90_sparse_decode_v32_h128", 231424, 2,
        frozenset((EMPTY_RANGE, UNWAITED_STORE, NO_FENCE_REMOTE, RELAXED_END)),
    ),
    Kernel("sm90_dense_decode_bf16", 230816, 1, frozenset((EMPTY_RANGE, UNWAITED_STORE, UNCOPIED)),
    ),
)  # fmt: skip


def text_of(kernel):
    """The PTX, or a skip that says what is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with FlashMLA's kernels as PTX")
    path = Path(folder, f"{kernel.file}.ptx")
    if not path.is_file():
        pytest.skip(f"{VARIABLE}: {path} is missing")
    return path.read_text()


def class_of(finding):
    """The class of a finding, None where it has no verdict."""
    rule, severity = finding.rule, finding.severity
    if (rule, severity) == ("proxy-fence", "letter") and "wgmma" in finding.text:
        if "cp.async" in finding.other_text:
            return NO_FENCE
        return NO_FENCE_REMOTE if "st.async" in finding.other_text else None
    if (rule, severity) == ("bulk-unwaited", "letter"):
        return UNWAITED_STORE
    # The copies of Q before the loop over requests, the waits for them inside it.
    if finding.guess.startswith("memory holds a range that is empty"):
        return EMPTY_RANGE
    if rule == "cluster-end" and "mbarrier.arrive" in finding.text:
        return RELAXED_END
    if rule == "mbarrier-transaction" and (finding.line, finding.other_line) == (7438, 7425):
        return UNCOPIED
    return None


# What the emulator finds, by kernel: in mode "latest" all of it.
EMULATED = {
    "sm90_sparse_prefill_k576": PREFILL,
    "sm90_sparse_prefill_k512": PREFILL,
    "sm90_dense_decode_bf16": frozenset((NO_BARRIER,)),
    "sm100_sparse_prefill_h128_k576": frozenset((UNWAITED_STORE, OTHER_LANES)),
    "sm100_sparse_prefill_h64_k576": frozenset((UNWAITED_STORE, OTHER_LANES, NO_FENCE)),
    "sm100_sparse_decode_v32_h64": frozenset((UNWAITED_STORE, OTHER_LANES, EARLY_USE)),
}


def emulated_class_of(finding):
    """The class of a finding of the emulator, None where it has no verdict."""
    if finding.severity != "letter":
        sums = finding.kind == "race-war" and "[%r18], %f194" in finding.asm
        return SUMS_OVER_MAXIMA if sums and "[%r19]" in (finding.other_asm or "") else None
    if finding.kind == "register-in-flight" and finding.asm.startswith("mov.b64"):
        return EARLY_USE if (finding.other_asm or "").startswith("tcgen05.ld") else None
    pair = {finding.asm.split(".")[0], (finding.other_asm or "").split(".")[0]}
    if finding.kind == "race-raw" and finding.needs == "fence.proxy.async":
        return NO_FENCE if pair in ({"wgmma", "cp"}, {"tcgen05", "cp"}) else None
    if finding.kind == "tensor-misuse" and "names other lanes" in finding.message:
        return OTHER_LANES
    if finding.kind == "pending-at-exit" and "bulk_group" in finding.asm:
        return UNWAITED_STORE
    if finding.kind in ("race-raw", "race-war") and "barrier of the warpgroup" in finding.needs:
        return NO_BARRIER
    return None
