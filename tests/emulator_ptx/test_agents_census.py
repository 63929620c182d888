"""Which of the agents' opcodes the PTX emulator translates, and which it refuses."""

import pytest
from running import kernel

from mlagen.emulator.ptx.program import translate
from mlagen.errors import UnsupportedError
from mlagen.ptx import read_ptx

HEAD = ".shared .align 8 .b64 bar;\n.shared .align 1024 .b8 buf[4096];"
BYTES = "mbarrier::complete_tx::bytes"
TENSOR = "cp.async.bulk.tensor.2d"
MODELLED = """
mbarrier.init.shared::cta.b64 [bar], 1
mbarrier.init.b64 [%rd1], %r2
mbarrier.inval.shared.b64 [bar]
mbarrier.arrive.shared::cta.b64 %rd2, [bar]
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 4
mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r1], 512
mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd2, [bar], 2
mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd2, [bar], 64
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 64
mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 64
mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [bar], %rd2
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], %r1, 1000
mbarrier.pending_count.b64 %r1, %rd2
bar.sync %r1, %r2
bar.cta.arrive 1, 64
bar.red.popc.u32 %r1, 1, 64, !%p1
barrier.cta.red.and.aligned.pred %p1, 0, %p2
barrier.sync.aligned 2
barrier.cluster.arrive.release.aligned
barrier.cluster.wait.acquire
fence.acq_rel.gpu
fence.sc.cluster
fence.proxy.async
fence.proxy.async.global
fence.proxy.async.shared::cta
fence.proxy.alias
fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128
fence.mbarrier_init.release.cluster
membar.gl
cp.async.ca.shared.global [buf], [%rd1], 4
cp.async.cg.shared::cta.global.L2::cache_hint.L2::256B [buf], [%rd1], 16, %r1, %rd2
cp.async.ca.shared.global [buf], [%rd1], 8, %p1
cp.async.commit_group
cp.async.wait_group 3
cp.async.wait_all
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar]
cp.async.bulk.commit_group
cp.async.bulk.wait_group.read 1
cp.async.bulk.shared::cluster.global.BYTES.multicast::cluster [buf], [%rd1], 64, [bar], %h1
cp.async.bulk.shared::cta.global.BYTES.L2::cache_hint [buf], [%rd1], 64, [bar], %rd2
cp.async.bulk.shared::cluster.shared::cta.BYTES [%r1], [buf], %r2, [%r3]
cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1], [buf], 64, %rd2
cp.async.bulk.prefetch.L2.global [%rd1], 64
cp.reduce.async.bulk.shared::cluster.shared::cta.BYTES.inc.u32 [%r1], [buf], 64, [%r2]
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%rd1], [buf], 64
TENSOR.shared::cluster.global.tile.BYTES.L2::cache_hint [buf], [%rd1, {0, %r1}], [bar], %rd2
TENSOR.shared::cluster.global.BYTES.multicast::cluster [buf], [%rd1, {0, 1}], [bar], %h1
TENSOR.cta_group::2.shared::cluster.global.BYTES [buf], [%rd1, {0, 1}], [bar]
TENSOR.shared::cta.global.tile::gather4.BYTES [buf], [%rd1, {0, 1, 2, 3, 4}], [bar]
TENSOR.global.shared::cta.tile::scatter4.bulk_group [%rd1, {0, 1, 2, 3, 4}], [buf]
TENSOR.global.shared::cta.bulk_group [%rd1, {0, 1}], [buf]
cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.tile.bulk_group [%rd1, {0, 1}], [buf]
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 1}]
st.async.weak.shared::cluster.BYTES.v4.b32 [%r1], {%r2, %r3, %r4, %r5}, [%r6]
st.async.shared::cluster.BYTES.s64 [%r1], %rd2, [%r6]
red.async.relaxed.cluster.shared::cluster.BYTES.add.u64 [%r1], %rd2, [%r6]
mapa.shared::cluster.u32 %r1, %r2, 1
mapa.u64 %rd1, %rd2, %r3
getctarank.shared::cluster.u32 %r1, %r2
griddepcontrol.wait
griddepcontrol.launch_dependents
setmaxnreg.dec.sync.aligned.u32 24
prefetch.tensormap [%rd1]
tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 4, %r1
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [buf], 128
"""  # noqa: E501 -- one instruction a line
REFUSED = """
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.BYTES [buf], [%rd1, {0, 1, 2, 3}], [bar], {%h1, %h2}
cp.async.bulk.shared::cluster.global.BYTES.ignore_oob [buf], [%rd1], 64, [bar], 0, 0
cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.f32 [%rd1], [buf], 64
cp.async.cg.shared.global [buf], [%rd1], 12
st.async.mmio.release.sys.global.u32 [%rd1], %r1
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster
fence.acquire.sync_restrict::shared::cluster.cluster
setmaxnreg.inc.sync.aligned.u32 20
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [buf], [bar]
mbarrier.try_wait.shared::cluster.bogus.b64 %p1, [bar], 0
"""  # noqa: E501 -- one instruction a line


def lines(text):
    named = text.replace("BYTES", BYTES).replace("TENSOR", TENSOR)
    return [line for line in named.splitlines() if line]


@pytest.mark.parametrize("line", lines(MODELLED))
def test_what_is_modelled(line):
    module = read_ptx(kernel(f"{line};\nret;", head=HEAD))
    assert len(translate(module, module.entries[0]).rows) == 3


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_is_refused_names_the_line(line):
    text = kernel(f"{line};\nret;", head=HEAD)
    number = next(n for n, one in enumerate(text.splitlines(), 1) if one.startswith(line))
    module = read_ptx(text)
    with pytest.raises(UnsupportedError, match=f"line {number}: .*does not model"):
        translate(module, module.entries[0])
