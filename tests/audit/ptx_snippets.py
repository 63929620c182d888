"""Small kernels around a few lines: a block with a buffer, four mbarriers, the usual registers."""

HEAD = """
.version 8.0
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 src, .param .u32 n){limits}
{{
    .shared .align 1024 .b8 buf[{buf}];
    .shared .align 8 .b64 bars[4];
    .reg .pred %p<8>, %wait, %one, %two;
    .reg .b32 %t, %wg, %lane, %n, %i, %base, %bar, %at, %parity, %r<16>, %a<4>;
    .reg .b64 %g, %da, %db, %map;
    .reg .f32 %d<4>, %x, %y;
    mov.u32 %t, %tid.x;
    shr.u32 %wg, %t, 7;
    and.b32 %lane, %t, 31;
    mov.u32 %base, buf;
    mov.u32 %bar, bars;
    shl.b32 %at, %t, 2;
    add.u32 %at, %at, %base;
    ld.param.u32 %n, [n];
    ld.param.u64 %g, [src];
    mov.b64 %map, map;
    setp.eq.u32 %one, %t, 0;
    setp.eq.u32 %two, %wg, 0;
    shr.u32 %r0, %base, 4;
    cvt.u64.u32 %da, %r0;
    or.b64 %da, %da, 0x4000004000010000;
    mov.b64 %db, %da;
"""

# One mbarrier of one arrival, initialised by thread 0 and known to the block.
INIT = """
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
"""
TWO = INIT.replace(
    "    fence", "    @%one mbarrier.init.shared::cta.b64 [%bar+8], 128;\n    fence", 1
)
ARM = """
    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
    @%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%base], [%g], 1024, [%bar];
"""
WAIT = """
W{0}: mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar+{1}], {2};
    @!%wait bra W{0};
"""
# D += A B, 64 x 8 x 16.
MMA = (
    "    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
    " {%d0, %d1, %d2, %d3}, %da, %db, 1, 1, 1, 0, 0;\n"
)
MMA_REGISTERS = MMA.replace("%da", "{%a0, %a1, %a2, %a3}").replace("1, 1, 1, 0, 0", "1, 1, 1, 0")
FENCE = "    wgmma.fence.sync.aligned;\n"
COMMIT = "    wgmma.commit_group.sync.aligned;\n"
DONE = "    wgmma.wait_group.sync.aligned 0;\n"
USE = "    add.f32 %x, %d0, %d1;\n"


def wait(name, parity=0, offset=0):
    return WAIT.format(name, offset, parity)


def kernel(body, *, threads=128, buf=16384, limits=None, target="sm_90a"):
    """The text of a kernel with these lines."""
    limits = f" .reqntid {threads}, 1, 1" if limits is None else limits
    return HEAD.format(limits=limits, buf=buf, target=target) + body + "\nEND:\n    ret;\n}\n"
