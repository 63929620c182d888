"""The static audit on AITER's objects: known bugs are named, every error has a verdict."""

from itertools import pairwise
from pathlib import Path

import pytest
from aiter import HISTORY, object_file
from aiter_mla import KERNELS, launch_persistent, problem, whole
from audit_verdicts import EXCHANGE, OPERAND, REFILL, SCRATCH, STALE_INDEX, judge

from mlagen.audit.gfx950 import audit_code_object
from mlagen.severity import ERROR, LETTER, of

# Objects and classes that their errors have at least.
SOME = {
    "fmha_v3_fwd/fwd_hd128_bf16.co": set(),
    "fmha_v3_fwd/fwd_hd128_fp8.co": {OPERAND, REFILL},
    "fmha_v3_fwd/fwd_hd256_fp8_causal.co": {OPERAND, REFILL},
    "fmha_v3_fwd/fwd_hd192_hd128_bf16.co": {REFILL},
    "mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal0.co": {REFILL},
    "mla/mla_a8w8_qh16_qseqlen4_gqaratio16.co": {EXCHANGE},
    "mla/mla_a16w16_qh32_qseqlen4_gqaratio32_ps.co": {STALE_INDEX, SCRATCH},
}


@pytest.mark.parametrize("path", SOME, ids=lambda path: Path(path).stem)
def test_every_error_has_a_verdict(path):
    judged = judge(path)
    assert not [str(error) for error, name in judged.classes if name is None]
    found = {name for _, name in judged.classes}
    assert SOME[path] <= found
    if not SOME[path]:
        assert not found


FIXED = ("fwd_hd192_hd128_bf16", "fwd_hd192_hd128_bf16_group", "fwd_hd192_hd128_bf16_causal",
         "fwd_hd192_hd128_bf16_causal_group")  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_the_fix_of_f1077c48c7(name):
    """The 16 matrix instructions, four in each of four places, that commit f1077c48c7 repaired."""
    found = {}
    for version in ("f1077c48c7p", "f1077c48c7"):
        path = f"{version}/hsa/gfx950/fmha_v3_fwd/{name}.co"
        report = audit_code_object(object_file(path, HISTORY).read_bytes())
        errors = of(report.findings, ERROR, LETTER)
        waits = [e for e in errors if e.rule in ("missing-wait", "counter-capacity")]
        assert len(waits) <= 1  # one cause, whatever the copies
        found[version] = [place for e in waits for place in e.places]
    assert found["f1077c48c7"] == []
    old = found["f1077c48c7p"]
    assert {e.rule for e in old} == {"counter-capacity"}
    assert all(e.asm.startswith("v_mfma_f32_32x32x16_bf16 v[208:223], a[") for e in old)
    assert all(e.other_asm.startswith("ds_read_b64_tr_b16 a[") for e in old)
    assert len({e.pc for e in old}) == len(old) == 4 * 4
    places = [e.pc for e in sorted(old, key=lambda e: e.pc)]
    runs = [places[i : i + 4] for i in range(0, 16, 4)]
    assert all(run[-1] - run[0] < 0x100 for run in runs)
    assert all(b[0] - a[-1] > 0x100 for a, b in pairwise(runs))


def test_what_did_not_end_ends():
    """The object that pull request 3988 repaired: its operands are read without a wait in a loop,
    in 8 copies. What the repair left is what the objects of today have."""
    name = "mla_a16w16_qh32_qseqlen4_gqaratio32_lse_ps"
    found = {}
    for version in ("664a7b0bb4p", "664a7b0bb4"):
        path = f"{version}/hsa/gfx950/mla/{name}.co"
        (audit,) = audit_code_object(object_file(path, HISTORY).read_bytes()).kernels
        assert not audit.limited
        found[version] = [e for e in audit.errors if e.rule == "missing-wait"]
    places = {v: {e.other_asm.split()[0]: len(e.places) for e in es} for v, es in found.items()}
    assert places["664a7b0bb4p"]["ds_read_b128"] == 8 * 36
    assert len(found["664a7b0bb4p"]) == 2 and sum(places["664a7b0bb4p"].values()) == 572
    assert sum(places["664a7b0bb4"].values()) == 4


def test_a_run_shows_what_only_the_audit_had_told():
    """Its path asks for a work item of one whole tile: launched with 32 keys, the last prefetch
    into LDS and that of a page index are still on their way when their places are used again."""
    name = "mla_a16w16_qh32_qseqlen4_gqaratio32_ps"
    judged = judge(f"mla/{name}.co")
    told = {(e.pc, name) for e, name in judged.classes if name in (STALE_INDEX, SCRATCH)}
    kernel = KERNELS[name]
    code = object_file(f"mla/{name}.co").read_bytes()
    shown = {}
    for keys in (31, 32):
        of = problem(kernel, (keys,))
        outcome = launch_persistent(code, kernel, of, [[whole(kernel, of, 0)]], "latest", 1)
        shown[keys] = {(f.pc, f.kind) for f in outcome.findings}
    for verdict, kind in ((STALE_INDEX, "overwrite-in-flight"), (SCRATCH, "race-waw")):
        places = {pc for pc, name in told if name == verdict}
        assert places & {pc for pc, k in shown[32] if k == kind}
        assert not {pc for pc, k in shown[31] if k == kind}
