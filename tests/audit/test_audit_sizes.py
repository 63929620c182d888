"""Sizes that kernels of compilers come by: fields of a parameter that are read through a register,
values of code that is not followed, phases in bits, indices by remainder."""

import pytest
from ptx_snippets import kernel

from mlagen.audit.ptx import audit_ptx

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
