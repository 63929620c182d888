"""Sizes that kernels of compilers come by: fields of a parameter that are read through a register,
values of code that is not followed, phases in bits, indices by remainder."""

import pytest
from ptx_snippets import kernel

from mlagen.audit.ptx import audit_ptx
from mlagen.audit.ptx.arithmetic import evaluate
from mlagen.audit.ptx.paths import Path
from mlagen.audit.ptx.values import Linear, compare

# Thread 0 copies; all wait, for as many tiles as a field says. The second warpgroup has the same
# number in another way.
RING = """
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    @%one mbarrier.init.shared::cta.b64 [%bar+8], 1;
    @%one mbarrier.init.shared::cta.b64 [%bar+16], 256;
    @%one mbarrier.init.shared::cta.b64 [%bar+24], 256;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.b64 %g, sizes;
    add.s64 %g, %g, 8;
    {first}
    mov.u32 %i, 0;
    mov.u32 %r9, 0;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra END;
LOOP:
    {slot}
    shl.b32 %r4, %r3, 3;
    add.u32 %r5, %r4, %bar;
    xor.b32 %r6, %parity, 1;
    @!%one bra READ;
E:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%r5+16], %r6;
    @!%wait bra E;
    shl.b32 %r7, %r3, 10;
    add.u32 %r7, %r7, %base;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%g], 1024, [%r5];
READ:
F:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%r5], %parity;
    @!%wait bra F;
    shl.b32 %r7, %r3, 10;
    add.u32 %r7, %r7, %base;
    ld.shared.f32 %x, [%r7];
    fence.proxy.async.shared::cta;
    mbarrier.arrive.shared::cta.b64 _, [%r5+16];
    add.u32 %i, %i, 1;
    setp.lt.u32 %p2, %i, %r2;
    @%p2 bra LOOP;
"""
FIELD = "ld.param.u32 %r2, [%g+16];\n    shr.u32 %r2, %r2, 6;"
TOGGLED = "and.b32 %r3, %i, 1;\n    shr.u32 %parity, %i, 1;\n    and.b32 %parity, %parity, 1;"
# Both phases in the bits of one register, each turned when its slot has been used.
PACKED = (
    "and.b32 %r3, %i, 1;\n    shr.u32 %parity, %r9, %r3;\n    and.b32 %parity, %parity, 1;\n"
    "    shl.b32 %r8, 1, %r3;\n    xor.b32 %r9, %r9, %r8;"
)
REMAINDER = "rem.u32 %r3, %i, 2;\n    div.u32 %parity, %i, 2;\n    rem.u32 %parity, %parity, 2;"
EITHER = """setp.eq.u32 %two, %wg, 0;
    @%two bra ONE;
    ld.param.u32 %r2, [%g+16];
    shr.u32 %r2, %r2, 6;
    bra BOTH;
ONE:
    ld.param.u32 %r2, [sizes+24];
    shr.u32 %r2, %r2, 6;
BOTH:
"""
# Code without synchronisation computes the number; it is the same for all warps.
SKIPPED = """ld.param.u32 %r2, [%g+16];
    ld.param.u32 %r8, [%g+20];
    setp.lt.u32 %p1, %r8, 7;
    @%p1 bra OTHER;
    add.u32 %r8, %r8, 63;
    shr.u32 %r2, %r8, 6;
OTHER:
"""


def findings(slot=TOGGLED, first=FIELD, **changed):
    text = kernel(RING.format(slot=slot, first=first), threads=256)
    text = text.replace(".param .u32 n)", ".param .u32 n, .param .align 8 .b8 sizes[64])")
    for old, new in changed.items():
        assert old in text
        text = text.replace(old, new)
    return audit_ptx(text)


@pytest.mark.parametrize("slot", [TOGGLED, PACKED, REMAINDER], ids=["bits", "packed", "remainder"])
@pytest.mark.parametrize("first", [FIELD, EITHER, SKIPPED], ids=["field", "two ways", "skipped"])
def test_a_ring_of_two(slot, first):
    report = findings(slot, first)
    assert not report.findings
    assert all("rounds" in said for said in report.unchecked)


@pytest.mark.parametrize("slot", [TOGGLED, PACKED, REMAINDER], ids=["bits", "packed", "remainder"])
def test_a_ring_that_is_not_released(slot):
    text = RING.replace("mbarrier.arrive.shared::cta.b64 _, [%r5+16];", "")
    report = audit_ptx(
        kernel(text.format(slot=slot, first=FIELD), threads=256).replace(
            ".param .u32 n)", ".param .u32 n, .param .align 8 .b8 sizes[64])"
        )
    )
    assert {finding.rule for finding in report.findings} & {"deadlock", "mbarrier-arrivals"}


def test_other_numbers_of_rounds_are_still_a_deadlock():
    """Two fields are two numbers."""
    other = EITHER.replace("[sizes+24]", "[sizes+28]")
    assert findings(first=other).findings


def test_values_by_lane_have_no_name():
    """The number depends on the warpgroup: nothing says that both have the same."""
    by_group = SKIPPED.replace("add.u32 %r8, %r8, 63", "add.u32 %r8, %r8, %wg")
    report = findings(first=by_group)
    assert report.findings or report.unchecked


# A block has the `%ctaid % n`th part of a list whose length is loaded; so many threads store.
PARTS = """
    mov.u32 %r1, %ctaid.x;
    div.u32 %r2, %r1, %n;
    mul.lo.u32 %r3, %r2, %n;
    sub.u32 %r3, %r1, %r3;
    mul.wide.u32 %db, %r2, 4;
    add.u64 %db, %db, %g;
    ld.global.nc.u32 %r4, [%db];
    add.u32 %r5, %r4, %n;
    sub.u32 %r5, %r5, 1;
    div.u32 %r5, %r5, %n;
    mul.lo.u32 %r6, %r5, %r3;
    add.u32 %r5, %r5, %r6;
    min.u32 %r5, %r5, %r4;
    sub.s32 %r5, %r5, %r6;
    max.s32 %r5, %r5, 0;
    setp.le.u32 %p2, %r5, 2;
    @%p2 bra END;
    setp.lt.u32 %p1, %t, %r5;
    @%p1 st.shared.f32 [%at], %x;
    {barrier}
    xor.b32 %at, %at, 4;
    ld.shared.f32 %x, [%at];
"""


@pytest.mark.parametrize(("barrier", "rules"), [("bar.sync 0;", set()), ("", {"smem-raw"})])
def test_parts_of_what_is_loaded_are_followed(barrier, rules):
    """Values that lead there divide by no zero, and what is loaded keeps its value when its
    address becomes a number."""
    report = audit_ptx(kernel(PARTS.format(barrier=barrier)))
    assert {finding.rule for finding in report.findings} == rules
    assert not report.unchecked


def test_nothing_is_divided_by_zero():
    """What that gives, all ones, would be a value for any decision that asks for a large one."""
    n, x = (Linear(((("param", name), 1),)) for name in ("n", "x"))
    path = Path((), 4)
    part = evaluate(("div", "u32"), [x, n])
    assert path.decide(compare(part, 5, "ge"), True) and path.possible()
    assert all(values["param", "n"] for values in path.witnesses())


# A size decides which lanes load data, and data which of them store; the copy overwrites it.
BY_LANE = """
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %r1, 0;
    setp.lt.u32 %p1, %lane, %n;
    mul.wide.u32 %db, %lane, 4;
    add.s64 %db, %db, %g;
    @%p1 ld.global.u32 %r1, [%db];
    setp.ne.u32 %p2, %r1, 0;
    @%p2 st.shared.b32 [%at], %r1;
    fence.proxy.async.shared::cta;
    {between}
    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
    @%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%base], [%g], 1024, [%bar];
W:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], 0;
    @!%wait bra W;
"""


def test_lanes_that_load_data_by_a_size_need_no_path_of_their_own():
    report = audit_ptx(kernel(BY_LANE.format(between="bar.sync 0;")))
    assert not report.findings
    (entry,) = report.entries
    assert entry.facts["paths"] == 2  # one in either order of the warps
    (found,) = audit_ptx(kernel(BY_LANE.format(between=""))).findings
    assert found.rule == "smem-waw"


def test_a_path_keeps_the_values_that_it_was_found_by(monkeypatch):
    """Those that are looked for at its end may not be found again."""
    first, looks = Path.witnesses, []

    def once(path):
        looks.append(path)
        return first(path) if sum(one is path for one in looks) == 1 else []

    monkeypatch.setattr(Path, "witnesses", once)
    wrong = RING.format(first=FIELD, slot=TOGGLED).replace("fence.proxy.async.shared::cta;", "")
    found = audit_ptx(kernel(wrong.replace("sizes", "map"), threads=256)).findings
    assert found and all(one.when for one in found)
