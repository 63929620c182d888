"""Each immediate of PTX beside its limit: the value that just fits, and the one that does not."""

import pytest

from mlagen.ptx import read_ptx
from mlagen.ptx.immediates import misfit, misfits

HEAD = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k() {
.reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %d<9>; .reg .f32 %f<256>;
.shared .align 8 .b64 bar;
"""


def one(text):
    (entry,) = read_ptx(f"{HEAD}{text}\nret;\n}}\n").entries
    return misfit(entry.instructions[0])


# What fits, what does not, and what is said of that.
PAIRS = [
    ("ld.global.u32 %r1, [%d1+2147483647];", "ld.global.u32 %r1, [%d1+2147483648];", "32 bits"),
    ("st.shared.u32 [%r2+-2147483648], %r1;", "st.shared.u32 [%r2+-2147483649], %r1;", "32 bits"),
    ("mbarrier.init.shared::cta.b64 [bar], 1048575;",
     "mbarrier.init.shared::cta.b64 [bar], 1048576;", "1 to 1048575"),
    ("mbarrier.init.shared::cta.b64 [bar], 1;", "mbarrier.init.shared::cta.b64 [bar], 0;", "1 to"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1048575;",
     "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1048576;", "bytes"),
    ("mbarrier.arrive.shared::cta.b64 _, [bar], 1;",
     "mbarrier.arrive.shared::cta.b64 _, [bar], 0;", "arrivals"),
    ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1;",
     "mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 2;", "parity"),
    ("bar.sync 15, 128;", "bar.sync 16, 128;", "0 to 15"),
    ("barrier.cta.sync.aligned 1, 1024;", "barrier.cta.sync.aligned 1, 1056;", "multiple of 32"),
    ("bar.arrive 1, 64;", "bar.arrive 1, 48;", "multiple of 32"),
    ("bar.warp.sync 0xffffffff;", "bar.warp.sync 0x1ffffffff;", "mask"),
    ("setmaxnreg.inc.sync.aligned.u32 256;", "setmaxnreg.inc.sync.aligned.u32 264;", "24 to 256"),
    ("setmaxnreg.dec.sync.aligned.u32 24;", "setmaxnreg.dec.sync.aligned.u32 28;", "multiple of 8"),
    ("cp.async.cg.shared.global [%r1], [%d1], 16;", "cp.async.cg.shared.global [%r1], [%d1], 8;",
     "16"),
    ("cp.async.ca.shared.global [%r1], [%d1], 4, 0;",
     "cp.async.ca.shared.global [%r1], [%d1], 4, 8;", "0 to 4"),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 32, [bar];",
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 24, [bar];",
     "multiple of 16"),
    ("cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;",
     "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 0;", "multiple of 16"),
    ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 512;",
     "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 96;", "one of 32, 64"),
    ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;",
     "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 16;", "one of 32, 64"),
    ("shfl.sync.idx.b32 %r1, %r2, 31, 31, 0xffffffff;",
     "shfl.sync.idx.b32 %r1, %r2, 32, 31, 0xffffffff;", "0 to 31"),
    ("shfl.sync.up.b32 %r1, %r2, 1, 0, 0xffffffff;",
     "shfl.sync.up.b32 %r1, %r2, 1, 0x20, 0xffffffff;", "clamp"),
    ("vote.sync.any.pred %p1, %p2, 0xffffffff;", "vote.sync.any.pred %p1, %p2, 0x100000000;",
     "mask"),
    ("ld.global.L2::256B.u32 %r1, [%d1];", "ld.global.L2::512B.u32 %r1, [%d1];", "prefetch"),
]  # fmt: skip


@pytest.mark.parametrize(("fits", "breaks", "said"), PAIRS)
def test_the_last_that_fits_and_the_first_that_does_not(fits, breaks, said):
    assert one(fits) == ""
    assert said in one(breaks)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [("m64n8k16", True), ("m64n256k16", True), ("m64n12k16", False), ("m64n264k16", False),
     ("m64n64k8", False), ("m32n64k16", False)],
)  # fmt: skip
def test_shapes_of_wgmma(shape, fits):
    n = int(shape.split("n")[1].split("k")[0])
    regs = ", ".join(f"%f{i}" for i in range(max(1, min(n // 2, 128))))
    text = (
        f"wgmma.mma_async.sync.aligned.{shape}.f32.bf16.bf16 {{{regs}}}, %d1, %d2, %p1, 1, 1, 0, 0;"
    )
    assert (one(text) == "") is fits


def test_misfits_come_with_their_lines():
    (entry,) = read_ptx(f"{HEAD}bar.sync 1, 64;\nbar.sync 16;\nbar.sync %r1;\nret;\n}}\n").entries
    assert [(x.instruction.line, x.why) for x in misfits(entry)] == [
        (8, "barrier 16; it is 0 to 15")
    ]
