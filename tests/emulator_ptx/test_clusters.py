"""Clusters of the PTX emulator: other CTAs' shared memory, multicast, launches, registers."""

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator import Argument, Buffer, Launch, Settings, TensorMap, emulate
from mlagen.emulator.ptx import layout as y

MODES = ("latest", "earliest", "drawn")
HEAD = ".shared .align 8 .b64 bar;\n.shared .align 1024 .b8 buf[4096];"
START = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r2, %cluster_ctarank;
ld.param.u64 %rd1, [p];
mov.u32 %r3, buf;
mov.u32 %r4, bar;
@%p1 mbarrier.init.shared::cta.b64 [bar], COUNT;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;\n@!%p9 bra W;\n"
LEAVE = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nret;"
TWO = {"grid": (2, 1, 1), "cluster": (2, 1, 1)}


def pair(body, count=1):
    return kernel(START.replace("COUNT", str(count)) + body + LEAVE, "p", head=HEAD)


@pytest.mark.parametrize("mode", MODES)
def test_words_are_sent_to_the_other_cta(mode):
    # Each lane sends two words to the partner, whose mbarrier counts the bytes.
    text = pair(
        """
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
xor.b32 %r5, %r2, 1;
mad.lo.u32 %r6, %r1, 8, %r3;
mapa.shared::cluster.u32 %r7, %r6, %r5;
mapa.shared::cluster.u32 %r8, %r4, %r5;
mad.lo.u32 %r9, %r2, 1000, %r1;
add.u32 %r10, %r9, 500;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r7], {%r9, %r10}, [%r8];
"""
        + WAIT
        + """
ld.shared.v2.u32 {%r11, %r12}, [%r6];
mad.lo.u32 %r13, %r2, 32, %r1;
mad.wide.u32 %rd2, %r13, 8, %rd1;
st.global.v2.u32 [%rd2], {%r11, %r12};
"""
    )
    out = np.zeros((2, 32, 2), np.uint32)
    ran = run(text, {"p": out}, mode=mode, **TWO)
    assert ran.ended and not ran.findings
    for rank in range(2):
        base = 1000 * (1 - rank) + np.arange(32)
        assert np.array_equal(out[rank], np.stack([base, base + 500], 1))


@pytest.mark.parametrize("mode", MODES)
def test_an_arrival_on_the_other_ctas_mbarrier(mode):
    text = pair(
        """
xor.b32 %r5, %r2, 1;
mapa.shared::cluster.u32 %r7, %r3, %r5;
mapa.shared::cluster.u32 %r8, %r4, %r5;
add.u32 %r9, %r2, 40;
@%p1 st.shared::cluster.u32 [%r7], %r9;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [bar], 0;
@!%p9 bra W;
ld.shared.u32 %r11, [buf];
mad.wide.u32 %rd2, %r2, 4, %rd1;
@%p1 st.global.u32 [%rd2], %r11;
""",
        32,
    )
    out = np.zeros(2, np.uint32)
    ran = run(text, {"p": out}, mode=mode, **TWO)
    assert ran.ended and not ran.findings
    assert list(out) == [41, 40]


@pytest.mark.parametrize("mode", MODES)
def test_a_load_reaches_every_cta_of_its_mask(mode):
    # Each of four CTAs loads a quarter of the box for all four.
    text = kernel(
        START.replace("COUNT", "1")
        + """
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
mad.lo.u32 %r5, %r2, 512, %r3;
mul.lo.u32 %r6, %r2, 8;
mov.b16 %h1, 15;
@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
 [%r5], [m, {0, %r6}], [bar], %h1;
"""
        + WAIT
        + """
mad.wide.u32 %rd2, %r2, 2048, %rd1;
@!%p1 bra J;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [buf], 2048;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
J:
"""
        + LEAVE,
        "p, .param .align 64 .b8 m[128]",
        head=HEAD,
    )
    array = np.random.default_rng(3).integers(1, 60000, (32, 32)).astype(np.uint16)
    made = TensorMap(Buffer("t", array), "u16", (32, 32), (64,), (32, 8))
    out = np.zeros((4, 32, 32), np.uint16)
    ran = run(text, {"p": out}, maps={"m": made}, mode=mode, grid=(4, 1, 1), cluster=(4, 1, 1))
    assert ran.ended and not ran.findings
    assert all(np.array_equal(out[rank], array) for rank in range(4))


@pytest.mark.parametrize("mode", MODES)
def test_shared_memory_is_copied_to_the_other_cta(mode):
    text = pair(
        """
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
mad.lo.u32 %r6, %r1, 4, %r3;
mad.lo.u32 %r9, %r2, 1000, %r1;
st.shared.u32 [%r6], %r9;
fence.proxy.async.shared::cta;
bar.sync 0;
xor.b32 %r5, %r2, 1;
add.u32 %r7, %r3, 1024;
mapa.shared::cluster.u32 %r7, %r7, %r5;
mapa.shared::cluster.u32 %r8, %r4, %r5;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
 [%r7], [buf], 128, [%r8];
"""
        + WAIT
        + """
ld.shared.u32 %r11, [%r6+1024];
mad.lo.u32 %r13, %r2, 32, %r1;
mad.wide.u32 %rd2, %r13, 4, %rd1;
st.global.u32 [%rd2], %r11;
"""
    )
    out = np.zeros((2, 32), np.uint32)
    ran = run(text, {"p": out}, mode=mode, **TWO)
    assert ran.ended and not ran.findings
    assert np.array_equal(out, [1000 + np.arange(32), np.arange(32)])


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_in_the_other_ctas_memory(mode):
    text = pair(
        """
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
st.shared.u32 [buf], 100;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r5, %r2, 1;
mapa.shared::cluster.u32 %r7, %r3, %r5;
mapa.shared::cluster.u32 %r8, %r4, %r5;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
 [%r7], %r1, [%r8];
"""
        + WAIT
        + """
ld.shared.u32 %r11, [buf];
mad.wide.u32 %rd2, %r2, 4, %rd1;
@%p1 st.global.u32 [%rd2], %r11;
"""
    )
    out = np.zeros(2, np.uint32)
    ran = run(text, {"p": out}, mode=mode, **TWO)
    assert ran.ended and set(out) == {100 + sum(range(32))}


@pytest.mark.parametrize("mode", MODES)
def test_an_mbarrier_is_initialised_for_the_other_cta_by_a_fence(mode):
    start = START.replace("COUNT", "32").replace("arrive.aligned", "arrive.relaxed.aligned", 1)
    body = """
xor.b32 %r5, %r2, 1;
mapa.shared::cluster.u32 %r8, %r4, %r5;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
"""
    out = np.zeros(2, np.uint32)
    for text in (start, start.replace("fence.mbarrier_init.release.cluster;", "")):
        ran = run(kernel(text + body + WAIT + LEAVE, "p", head=HEAD), {"p": out}, mode=mode, **TWO)
        assert ran.ended and ran.kinds() == ([] if text is start else ["RACE"])


def test_a_wait_at_the_clusters_barrier_without_an_arrival_is_found():
    text = kernel("barrier.cluster.wait.aligned; ret;")
    assert run(text, **TWO).kinds() == ["BARRIER_COUNT"]
    text = kernel("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait; ret;")
    assert run(text, **TWO).kinds() == ["BARRIER_COUNT"]


def test_ranks_of_addresses():
    text = pair(
        """
xor.b32 %r5, %r2, 1;
mapa.shared::cluster.u32 %r7, %r3, %r5;
getctarank.shared::cluster.u32 %r8, %r7;
cvta.shared.u64 %rd3, %rd4;
mad.wide.u32 %rd2, %r2, 4, %rd1;
@%p1 st.global.u32 [%rd2], %r8;
"""
    )
    out = np.full(2, 9, np.uint32)
    ran = run(text, {"p": out}, **TWO)
    assert ran.ended and list(out) == [1, 0]


def test_an_arrival_at_a_cta_that_has_ended_is_found():
    body = (
        START.replace("COUNT", "1")
        + """
setp.eq.u32 %p2, %r2, 0;
@%p2 ret;
mov.u32 %r6, 0;
L: add.u32 %r6, %r6, 1;
setp.lt.u32 %p3, %r6, 100;
@%p3 bra L;
mov.u32 %r5, 0;
mapa.shared::cluster.u32 %r8, %r4, %r5;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
ret;"""
    )
    out = np.zeros(2, np.uint32)
    ran = run(kernel(body, "p", head=HEAD), {"p": out}, mode="earliest", **TWO)
    assert ran.ended and "SHARED_GONE" in ran.kinds()


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_barrier_that_one_cta_does_not_reach(mode):
    text = kernel(
        "mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 0;"
        "@%p1 bra OUT; barrier.cluster.arrive.aligned; OUT: @!%p1 barrier.cluster.wait.aligned;"
        "@!%p1 ret; bar.sync 1, 64; ret;"
    )
    ran = run(text, mode=mode, **TWO)
    assert ran.code == y.R_YIELD and not ran.fault


def test_threads_that_have_exited_are_not_waited_for_by_the_cluster():
    text = kernel(
        "mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 0;"
        "@%p1 ret; barrier.cluster.arrive; barrier.cluster.wait; ret;"
    )
    for mode in MODES:
        ran = run(text, mode=mode, **TWO)
        assert ran.ended and not ran.findings


def test_a_wait_for_an_earlier_grid_and_a_launch_go_on():
    ran = run(kernel("griddepcontrol.wait; griddepcontrol.launch_dependents; ret;"))
    assert ran.ended


LATE = """
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 32;
ld.param.u64 %rd1, [p];
mad.wide.u32 %rd2, %r1, 4, %rd1;
@!%p1 bra OTHER;
WAIT
OTHER:
MET
ld.global.u32 %r2, [%rd2];
st.global.u32 [%rd2 + 256], %r2;
ret;
"""


@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
def test_what_the_kernel_before_writes_is_there_after_the_wait(mode):
    """One warp waits for both where they meet; else the kernel before may still write."""
    wait, met = "griddepcontrol.wait;", "bar.sync 0;"
    for before, after in ((wait, met), ("", met), (wait, ""), ("", "")):
        held = np.arange(128, dtype=np.uint32)
        text = kernel(LATE.replace("WAIT", before).replace("MET", after), "p")
        given = [Argument(0, Buffer("p", held, late=True))]
        ran = emulate(text, Launch((3, 1, 1), (64, 1, 1), given), Settings(mode=mode))
        if before and after:
            # Three blocks store the same values to the same words, by the letter a race.
            assert {found.severity for found in ran.findings} == {"letter"}
            assert np.array_equal(held[64:], np.arange(64))
        else:
            told = [f for f in ran.findings if "the kernel before it may still write" in str(f)]
            assert told and told[0].kind == "global-bounds"


def registers(consumer, producer):
    return kernel(
        f"""
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 128;
@%p1 bra PRODUCE;
setmaxnreg.inc.sync.aligned.u32 {consumer};
ret;
PRODUCE:
setmaxnreg.dec.sync.aligned.u32 {producer};
ret;
""",
        directives=".reqntid 384",
    )


@pytest.mark.parametrize("mode", MODES)
def test_registers_are_waited_for(mode):
    # 384 threads begin with 168 registers each.
    assert run(registers(240, 24), block=(384, 1, 1), mode=mode).ended
    ran = run(registers(248, 24), block=(384, 1, 1), mode=mode)
    assert ran.code == y.R_YIELD


def test_more_registers_than_a_warp_has_cannot_be_given_back():
    assert "REGISTERS_BUDGET" in run(registers(176, 176), block=(384, 1, 1)).kinds()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("blocks, most, fits", [(1, 240, True), (2, 240, False), (2, 232, True)])
def test_registers_of_two_blocks_on_a_multiprocessor(blocks, most, fits, mode):
    # 256 threads begin with 255 or, where two blocks are to be there, with 128.
    text = kernel(
        f"""mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128;
        @!%p1 bra U;
        setmaxnreg.dec.sync.aligned.u32 24;
        bra E;
        U: setmaxnreg.{"inc" if blocks == 2 else "dec"}.sync.aligned.u32 {most};
        E: ret;""",
        directives=f".maxntid 256, 1, 1\n.minnctapersm {blocks}",
    )
    ran = run(text, block=(256, 1, 1), mode=mode)
    assert ran.ended == fits and not ran.findings
