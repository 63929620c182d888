"""What the fuzzer of PTX starts from: a frame for statements, small kernels, a launch file."""

from __future__ import annotations

_REGISTERS = """.reg .pred %p<64>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .f32 %f<64>;
.reg .b64 %rd<64>; .reg .f64 %d<64>; .reg .b128 %q<64>;"""
_MAPS = ", ".join(f".param .align 64 .b8 m{n}[128]" for n in range(1, 6))


def kernel(body: str, parameters: str = ".param .u64 p, .param .u64 q, .param .u32 n") -> str:
    return f""".version 8.6
.target sm_90a
.address_size 64
.global .align 16 .b32 gl[64] = {{1, 2, 3}};
.const .align 16 .b32 ct[16] = {{1, 2, 3, 4}};
.func (.param .b32 back) twice(.param .b32 x)
{{
.reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; setp.gt.u32 %p1, %r1, 9; @%p1 ret;
st.param.b32 [back], %r2; ret;
}}
.visible .entry k({parameters})
{{
{_REGISTERS}
.shared .align 1024 .b8 sh[16384];
.shared .align 8 .b64 bar;
.local .align 16 .b8 lo[256];
{body}
}}
"""


_BEGIN = """
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u32 %r63, [n];
mov.u32 %r0, %tid.x; mov.u32 %r1, sh; mov.u32 %r2, bar; shl.b32 %r3, %r0, 4;
add.u32 %r4, %r3, %r1; cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd42, %rd3;
mov.b64 %rd8, 0x4000004000010040; mov.b64 %rd9, 0x0000010000400080; mov.b64 %rd10, 0x80000040;
mov.b64 %rd5, m2; mov.b64 %rd6, 0x7D0000000000; add.u64 %rd7, %rd6, %rd5;
mov.u32 %r5, 512; mov.u32 %r6, 3; mov.u16 %h1, 1; mov.f32 %f1, 0f3F800000; mov.f64 %d1, 0d1;
mov.b64 %rd4, gl; setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 7; mov.u32 %r10, 0;
@%p1 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
"""
FRAME = kernel(
    f"{_BEGIN}\nBODY\nret;", f".param .u64 p, .param .u64 q, .param .u32 n, {_MAPS}"
).replace("0d1;", "0d3FF0000000000000;")
# All of tensor memory, its address in %r40.
TENSOR_FRAME = FRAME.replace("sm_90a", "sm_100a").replace(
    "BODY",
    """setp.lt.u32 %p62, %r0, 32; mov.u32 %r41, sh; add.u32 %r41, %r41, 16368;
@%p62 tcgen05.alloc.GROUP.sync.aligned.shared::cta.b32 [%r41], 512; bar.sync 0;
ld.shared.u32 %r40, [%r41]; shr.u32 %r42, %r0, 5; shl.b32 %r42, %r42, 21; add.u32 %r42, %r42, %r40;
BODY
bar.sync 0; @%p62 tcgen05.dealloc.GROUP.sync.aligned.b32 %r40, 512;""",
)
_WAIT = """
W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], %r10; @!%p3 bra W;
"""
_LANES = "mad.wide.u32 %rd10, %r0, 4, %rd1;"
_BODIES = (
    # loads, arithmetic, stores
    f"""{_LANES} ld.global.u32 %r11, [%rd10]; mul.lo.u32 %r12, %r11, 7; cvt.rn.f32.u32 %f2, %r12;
    ex2.approx.f32 %f3, %f2; fma.rn.f32 %f4, %f3, %f2, %f1; st.global.f32 [%rd10], %f4;
    st.local.v2.u32 [lo+8], {{%r11, %r12}}; ld.local.u64 %rd11, [lo+8]; ld.const.u32 %r13, [ct+4];
    cvt.rn.bf16x2.f32 %r14, %f2, %f3; st.shared.v4.u32 [%r4], {{%r11, %r12, %r13, %r14}};""",
    # a loop, a call, an indexed branch
    """mov.u32 %r11, 0;
    A: add.u32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, %r6; @%p4 bra A;
    { .param .b32 a0; .param .b32 b0; st.param.b32 [a0], %r11; call.uni (b0), twice, (a0);
    ld.param.b32 %r12, [b0]; }
    rem.u32 %r13, %r0, 3; ts: .branchtargets X, Y, Z; brx.idx %r13, ts;
    X: add.u32 %r11, %r11, 1; bra Z; Y: add.u32 %r11, %r11, 2; Z: xor.b32 %r11, %r11, %r12;""",
    # atomics and order
    f"""{_LANES} atom.global.add.u32 %r11, [%rd1], 1; red.shared.add.u32 [%r1], 1;
    atom.acquire.gpu.global.cas.b32 %r12, [%rd10], %r11, 5; fence.acq_rel.gpu;
    st.release.gpu.global.u32 [%rd2], %r11; ld.acquire.gpu.global.u32 %r13, [%rd2];
    atom.global.exch.b128 %q1, [%rd1], %q2; red.global.add.noftz.bf16x2 [%rd1], %r11;""",
    # what lanes exchange
    """shfl.sync.bfly.b32 %r11|%p4, %r0, 1, 31, -1; vote.sync.ballot.b32 %r12, %p2, -1;
    match.any.sync.b32 %r13, %r11, -1; redux.sync.add.u32 %r14, %r0, -1;
    elect.sync %r15|%p5, -1; @%p2 bra B; bar.warp.sync -128; bra C; B: bar.warp.sync 127;
    C: activemask.b32 %r16; bar.red.popc.u32 %r17, 0, %p2;""",
    # copies to shared memory and back
    f"""@!%p1 bra D;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sh], [%rd1], 512, [bar];
    D: {_WAIT} ld.shared.u32 %r11, [%r4]; fence.proxy.async; @!%p1 bra E;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [sh], 64; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; E: cp.async.ca.shared.global [%r4], [%rd1], 16;
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 1, 32;""",
    # tensor copies, an edited map
    f"""@!%p1 bra D;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [sh], [m2, {{0, %r6}}], [bar]; D: {_WAIT} fence.proxy.async; @!%p1 bra E;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [m2, {{0, -1}}], [sh];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; E:
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [sh+1024], %rd1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [sh+1024], 0, %r6;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%rd2], [sh+1024], 128;""",
    # matrices
    """ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r4];
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f10, %f11, %f12, %f13},
    {%r11, %r12, %r13, %r14}, {%r15, %r16}, {%f10, %f11, %f12, %f13};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f20, %f21, %f22, %f23}, %rd10, %rd10,
    1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r4], {%r11, %r12}; setmaxnreg.dec.sync.aligned.u32
    24; griddepcontrol.wait; griddepcontrol.launch_dependents;""",
    # clusters
    """mov.u32 %r11, %cluster_ctarank; mov.u32 %r12, %cluster_nctarank; add.u32 %r13, %r11, 1;
    rem.u32 %r13, %r13, %r12; mapa.shared::cluster.u32 %r14, %r1, %r13;
    mapa.shared::cluster.u32 %r15, %r2, %r13; barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned; st.shared::cluster.u32 [%r14], %r0; @!%p1 bra D;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32
    [%r14+512], {%r0, %r0, %r0, %r0}, [%r15];
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
    [%r14], [sh], 496, [%r15];
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];
    D: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;""",
)
KERNELS = tuple(FRAME.replace("BODY", body) for body in _BODIES)
LAUNCHED = kernel(
    f"{_BEGIN.replace('mov.b64 %rd5, m2;', 'mov.b64 %rd5, t;').replace('0d1', '0d0')}"
    "ld.param.u32 %r20, [s+4]; @!%p1 bra E; cp.async.bulk.tensor.2d.shared::cluster.global"
    ".mbarrier::complete_tx::bytes [sh], [t, {0, 0}], [bar]; E: st.global.u32 [%rd1], %r20; ret;",
    ".param .u64 p, .param .u64 q, .param .u32 n, .param .align 8 .b8 s[16], "
    ".param .align 64 .b8 t[128]",
).replace("0d0;", "0d0000000000000000;")
LAUNCH = """kernel = "k"
grid = [2, 1, 1]
block = [64, 1, 1]
cluster = [1, 1, 1]
dynamic_shared = 1024
workgroups = [[0, 0, 0]]
allow_unset = true
[buffers.x]
dtype = "bf16"
shape = [24, 64]
fill = 1.0
[buffers.out]
dtype = "u32"
shape = [64]
access = "readwrite"
guard = 64
output = "out.npy"
[buffers.in]
file = "in.npy"
address = 0x40000000
[[tensor_maps]]
name = "m"
buffer = "x"
dtype = "bf16"
dims = [64, 24]
strides = [128]
box = [64, 4]
element_strides = [1, 1]
swizzle = "128B"
fill = "zeros"
interleave = "none"
l2 = "none"
buffer_offset = 0
[[arguments]]
name = "p"
buffer = "out"
buffer_offset = 0
[[arguments]]
name = "q"
buffer = "in"
[[arguments]]
name = "n"
type = "u32"
value = 3
[[arguments]]
name = "s"
offset = 4
type = "u32"
value = 77
[[arguments]]
name = "t"
tensor_map = "m"
"""
