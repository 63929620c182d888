"""Two clusters that hand data on through global memory by a flag: proxies and completion count."""

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx import layout as y

HEAD = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 buf[256];"
# Block 0 writes 128 bytes and raises the flag behind them; block 1 waits for it and reads.
TEXT = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r2, 0;
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [flag]; mov.u32 %r3, buf;
mad.wide.u32 %rd3, %r1, 4, %rd1; mad.lo.u32 %r4, %r1, 4, %r3;
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0;
@!%p2 bra READER;
st.shared.u32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync 0xffffffff;
{write}
bar.warp.sync 0xffffffff;
@%p1 st.release.gpu.global.u32 [%rd2], 1;
bra END;
READER:
ld.acquire.gpu.global.u32 %r9, [%rd2]; setp.eq.u32 %p3, %r9, 0; @%p3 bra READER;
bar.warp.sync 0xffffffff;
{read}
END: ret;"""
BULK = """@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [buf], 128;
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group{} 0;"""
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [%rd1], 128, [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0; @!%p4 bra W;"""
STORE, READ = "st.global.u32 [%rd3], %r1;", "ld.global.u32 %r10, [%rd3];"
FENCE, SHARED = "fence.proxy.async.global;\n", "fence.proxy.async.shared::cta;\n"
EVERY = [("latest", 0), ("earliest", 0), *(("drawn", seed) for seed in range(4))]


@pytest.mark.parametrize("mode, seed", EVERY)
@pytest.mark.parametrize(
    "write, read, wrong",
    [
        (STORE, READ, False),
        (STORE, LOAD, True),
        (STORE + FENCE, LOAD, False),
        (STORE, FENCE + LOAD, False),
        (STORE, "fence.proxy.async;\n" + LOAD, False),
        (STORE + SHARED, SHARED + LOAD, True),
        (BULK.format(""), READ, False),
        (BULK.format(""), LOAD, False),
        (BULK.format(".read"), READ, True),
        (BULK.format(".read"), LOAD, True),
    ],
)
def test_what_a_flag_hands_on(write, read, wrong, mode, seed):
    text = kernel(TEXT.format(write=write, read=read), "p, flag", head=HEAD)
    arguments = {"p": np.zeros(32, np.uint32), "flag": np.zeros(1, np.uint32)}
    ran = run(text, arguments, grid=(2, 1, 1), mode=mode, seed=seed)
    assert ran.ended
    races = [found for found in ran.findings if found.kind == "RACE" and found.c == y.ERROR]
    assert bool(races) == wrong


@pytest.mark.parametrize("mode, seed", EVERY)
@pytest.mark.parametrize("first, second, wrong", [
    ("ld.global.u32 %r10, [%rd1];", "st.global.u32 [%rd1], %r2;", True),
    ("st.global.u32 [%rd1], %r2;", "st.global.u32 [%rd1], 7;", True),
    ("red.global.add.u32 [%rd1], 1;", "red.global.add.u32 [%rd1], 1;", False),
    ("ld.global.u32 %r10, [%rd1];", "ld.global.u32 %r11, [%rd1];", False),
])  # fmt: skip
def test_blocks_that_tell_each_other_nothing(first, second, wrong, mode, seed):
    text = f"""mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 0; ld.param.u64 %rd1, [p];
    @%p2 {first}
    @!%p2 {second}
    ret;"""
    ran = run(kernel(text, "p"), {"p": np.zeros(32, np.uint32)}, grid=(2, 1, 1), mode=mode,
              seed=seed)  # fmt: skip
    assert ran.ended and ("RACE" in ran.kinds()) == wrong
