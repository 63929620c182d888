"""Two tables on purpose: what the generator thinks an instruction does, against what the checkers
read out of its encoding. Every difference is listed; none is tolerated."""

import pytest

from mlagen.binary import load_code_object
from mlagen.binary.effects import effects
from mlagen.codegen.build import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.isa import AGPR, SCC, SGPR

CHECKER_SCC = 128  # the checkers' number for SCC in the scalar file
EXEC = {("s", 126), ("s", 127)}  # the lane mask, which the generator leaves implicit


KERNELS = {
    "bf16": ("mha_prefill_v2", MhaConfigV2(6, 3, output_dtype="bf16")),
    "fp32": ("mha_prefill_v2", MhaConfigV2(6, 3, output_dtype="fp32")),
    "fp8, pages of 1": ("mla_prefill_v2", MlaConfigV2(2, 1, dtype="fp8_e4m3", page_size=1)),
    "accumulation registers": ("mla_decode_gfx950", MlaDecodeConfig(128)),
}


@pytest.fixture(scope="module", params=KERNELS)
def streams(request):
    """(generator's instructions, the same decoded from the code object, accum_offset)."""
    name, config = KERNELS[request.param]
    artifact = build(name, config)
    (kernel,) = load_code_object(artifact.code).kernels.values()
    schedule = schedule_of(load(name), config, {})
    layout = generate(schedule, templates_for("gfx950")).layout
    printed = []
    for segment in layout.segments:
        printed += segment.head
        for piece in segment.pieces:
            printed += piece.body
        printed += segment.tail
    printed = [x for x in printed if x.pipe != "label"]
    return printed, kernel.instructions, kernel.descriptor.accum_offset


def named(registers, accum_offset):
    result = set()
    for register in registers:
        if register in SCC:
            result.add(("s", CHECKER_SCC))
        elif register >= SGPR:
            result.add(("s", register - SGPR))
        elif register >= AGPR:
            result.add(("v", register - AGPR + accum_offset))
        else:
            result.add(("v", register))
    return result - EXEC


def decoded(accesses):
    return {(a.file, a.base + n) for a in accesses for n in range(a.count)} - EXEC


def whole_pairs(ours, theirs, a, b):
    """Packed f32 may read one dword of a pair only (op_sel). The generator takes it for the whole
    pair, which asks for more at most; nothing else of the two may differ."""
    if not ours.mnemonic.startswith("v_pk_") or "op_sel" not in ours.text or not b < a:
        return False
    read = {("v", o.index + n) for _, o in theirs.operands if o.kind == "v" for n in range(o.count)}
    return a - b <= read


def test_the_code_object_holds_what_was_printed(streams):
    printed, binary, _ = streams
    assert [x.mnemonic for x in printed] == [x.mnemonic for x in binary]


def test_both_tables_agree_on_every_instruction(streams):
    printed, binary, accum_offset = streams
    differences = {}
    for ours, theirs in zip(printed, binary, strict=True):
        effect = effects(theirs, accum_offset)
        for what, a, b in (
            ("reads", named(ours.reads, accum_offset), decoded(effect.reads)),
            ("writes", named(ours.writes, accum_offset), decoded(effect.writes)),
            ("counter", ours.counter, {"lds": "lgkm", "smem": "lgkm"}.get(effect.counter,
                                                                         effect.counter)),
        ):  # fmt: skip
            if what == "counter" and not a and ours.owner and ours.owner.guarded:
                continue  # a store that a branch may skip takes no ticket
            if a != b and not (what == "reads" and whole_pairs(ours, theirs, a, b)):
                differences.setdefault((ours.mnemonic, what), (ours.text, a, b))
    assert not differences, "\n".join(f"{k}: {v}" for k, v in differences.items())
