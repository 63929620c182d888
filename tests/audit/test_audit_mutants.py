"""Mutants of kernels that run: what is removed or altered is reported, or told to be equivalent."""

from pathlib import Path

import pytest
from ptx_snippets import kernel

from mlagen.audit.ptx import Beside, Given, audit_ptx, mutate, read_manifest
from mlagen.audit.ptx.changes import changes
from mlagen.audit.ptx.program import EntryProgram
from mlagen.errors import FindingsError
from mlagen.ptx import read_ptx
from mlagen.severity import ERROR, LETTER, of

KERNELS = Path(__file__).parent / "kernels"

# What is equivalent, by kernel: (line, change). Anything that joins this list wants a look.
EQUIVALENT = {
    "gemm_two_math": {
        (53, "named barrier 1"), (62, "registers -8"), (99, "setmaxnreg removed"),
        (99, "registers -8"),
    },
    "gemm_deferred_release": {
        (54, "named barrier 1"), (63, "registers -8"), (100, "setmaxnreg removed"),
        (100, "registers -8"),
    },
    "gemm_gather": {(51, "named barrier 1")},
    # 261 and 327: every warp comes to each; 0 has all 160 threads, and is not in use then.
    "gemm_persistent": {
        (51, "named barrier 1"), (261, "named barrier 2"), (261, "named barrier 0"),
        (327, "named barrier 2"), (327, "named barrier 0"),
    },
    # 157, 238, 307: the wgmma before is over for all four warps at once, and nobody else touches
    # the tile.
    "handoff": {
        (52, "named barrier 1"), (157, "bar removed"), (238, "bar removed"), (307, "bar removed"),
        (307, "named barrier 5"), (307, "named barrier 0"),
    },
    # 329, 630: only the matrix instructions touched O since the fence before.
    # 388: the even block's right half is fetched by who read the P before; its wait orders both.
    "seesaw": {
        (55, "named barrier 1"), (329, "wgmma.fence removed"), (388, "bar removed"),
        (630, "wgmma.fence removed"),
    },
}  # fmt: skip
LAUNCH = {"gemm_persistent": Given({"map_c": 32768})}


@pytest.mark.parametrize("name", EQUIVALENT)
def test_no_mutant_is_missed(name):
    report = mutate((KERNELS / f"{name}.ptx").read_text(), LAUNCH.get(name, Given()))
    assert not report.missed, report.missed
    equivalent = {(m.line, m.change) for m in report.mutants if m.outcome == "equivalent"}
    assert equivalent == EQUIVALENT[name]
    assert report.count("reported") > 40


def test_a_silent_mutant_without_a_reason_is_missed():
    # Where the block stores and loads is data: nothing can be claimed about the barrier.
    text = kernel(
        "    ld.volatile.global.u32 %r5, [%g];\n    add.u32 %r5, %r5, %base;\n"
        "    st.shared.b32 [%r5], %t;\n    bar.sync 0;\n    ld.shared.b32 %r6, [%r5];\n"
    )
    report = mutate(text)
    assert [mutant.change for mutant in report.missed] == ["bar removed"]


def test_a_barrier_s_number_does_not_matter_where_all_threads_meet():
    """At every barrier of either number: not where some of the threads meet."""
    text = kernel(
        "    setp.ge.u32 %p1, %t, 64;\n    bar.sync 0;\n    bar.sync 2, 128;\n"
        "    @%p1 bra LATER;\n    bar.sync 1, 64;\nLATER:\n"
    )
    told = "all threads of the block meet at each barrier of either number"
    entry = read_ptx(text).entries[0]
    excused = {
        (change.instruction.operands[0], change.what[-1])
        for change in changes(entry, text)
        if change.excuse == told
    }
    assert excused == {(2, "3"), (2, "0")}
    fewer = text.replace("2, 128", "2, 96")
    assert not any(c.excuse == told for c in changes(read_ptx(fewer).entries[0], fewer))


def test_a_kernel_with_findings_has_no_mutants():
    text = (KERNELS / "handoff.ptx").read_text().replace("wgmma.fence.sync.aligned;", "", 1)
    with pytest.raises(FindingsError, match="wgmma-fence"):
        mutate(text)


def test_the_order_through_global_memory_is_no_reason():
    """A barrier that only global memory needs is not told to be equivalent."""
    text = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 128, 1, 1
{
    .reg .b32 %t, %r;
    .reg .b64 %o, %at;
    mov.u32 %t, %tid.x;
    ld.param.u64 %o, [out];
    mul.wide.u32 %at, %t, 4;
    add.s64 %at, %at, %o;
    st.global.u32 [%at], %t;
    bar.sync 0;
    ld.global.u32 %r, [%o];
    st.global.u32 [%at+512], %r;
    ret;
}
"""
    assert [m.change for m in mutate(text).missed] == ["bar removed"]
    constant = text.replace("ld.global.u32", "ld.global.nc.u32")
    assert not mutate(constant).missed


def test_boxes_of_a_manifest_are_used(tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(
        '{"args": [{"name": "map_a", "tensor_map": {"dtype": "bf16", "box_cols": 64,'
        ' "box_rows": 128}}, {"name": "map_b", "tensor_map": {"dtype": "bf16", "box_cols": 64,'
        ' "box_rows": 64}}], "resources": {"lds_bytes": 131136}, "block": [384, 1, 1]}'
    )
    beside = read_manifest(manifest)
    assert beside == Beside({"map_a": 16384, "map_b": 8192}, 131136, 384, {})
    text = (KERNELS / "gemm_two_math.ptx").read_text()
    # Half of B's bytes are missing, which only the box can tell.
    told = audit_ptx(text, Given(beside=beside)).findings
    assert "mbarrier-transaction" in {f.rule for f in told}
    assert not of(audit_ptx(text).findings, ERROR, LETTER)
    # The last slot of B ends after a block with less memory.
    small = Beside({"map_a": 16384, "map_b": 16384}, 131072 - 8192, 384, {})
    assert "smem-bounds" in {f.rule for f in audit_ptx(text, Given(beside=small)).findings}


def test_warps_in_step_or_one_by_one_is_the_same(monkeypatch):
    """That a warpgroup's warps are followed together changes no verdict."""
    text = (KERNELS / "gemm_gather.ptx").read_text()
    together = mutate(text).mutants
    assert EntryProgram(read_ptx(text).entries[0]).unit == 128
    monkeypatch.setattr(EntryProgram, "_in_step", lambda self: False)
    assert EntryProgram(read_ptx(text).entries[0]).unit == 32
    alone = mutate(text).mutants
    assert [m.outcome for m in alone] == [m.outcome for m in together]


@pytest.mark.parametrize("name", EQUIVALENT)
def test_kernels_are_clean_warp_by_warp(name, monkeypatch):
    monkeypatch.setattr(EntryProgram, "_in_step", lambda self: False)
    report = audit_ptx((KERNELS / f"{name}.ptx").read_text(), LAUNCH.get(name, Given()))
    assert not of(report.findings, ERROR, LETTER)


def test_a_sample_is_a_part_of_all():
    text = (KERNELS / "gemm_gather.ptx").read_text()
    some = mutate(text, sample=5, seed=7).mutants
    assert len(some) == 5 and set(some) <= set(mutate(text).mutants)
    assert some == mutate(text, sample=5, seed=7).mutants


def test_code_that_no_path_leads_to_is_told():
    text = kernel(
        "    setp.lt.u32 %p1, %n, 4;\n    @%p1 bra S;\n    bra END;\nS:\n"
        "    setp.gt.u32 %p2, %n, 7;\n    @!%p2 bra END;\n    bar.sync 1, 96;\n"
    )
    (gap,) = (gap for gap in audit_ptx(text).unchecked if "no path" in gap)
    assert "1 lines" in gap
    removed, *_ = mutate(text).mutants
    assert removed.excuse == "no values of the parameters are found that lead to it"
