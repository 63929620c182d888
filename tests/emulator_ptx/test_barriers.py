"""Named barriers and the cluster's of the PTX emulator."""

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx import layout as y

MODES = ("latest", "earliest", "drawn")
HEAD = ".shared .align 16 .b8 buf[4096];"
START = "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p];"


@pytest.mark.parametrize("mode", MODES)
def test_all_threads_meet_before_they_read(mode):
    text = kernel(
        START
        + """
mov.u32 %r3, buf;
mad.lo.u32 %r4, %r1, 4, %r3;
mul.lo.u32 %r5, %r1, 3;
st.shared.u32 [%r4], %r5;
bar.sync 0;
xor.b32 %r6, %r1, 127;
mad.lo.u32 %r4, %r6, 4, %r3;
ld.shared.u32 %r7, [%r4];
mad.wide.u32 %rd2, %r1, 4, %rd1;
st.global.u32 [%rd2], %r7;
ret;
""",
        "p",
        head=HEAD,
    )
    out = np.zeros(128, np.uint32)
    ran = run(text, {"p": out}, block=(128, 1, 1), mode=mode)
    assert ran.ended and not ran.findings
    assert np.array_equal(out, 3 * (np.arange(128) ^ 127))


@pytest.mark.parametrize("mode", MODES)
def test_a_producer_arrives_and_goes_on(mode):
    text = kernel(
        START
        + """
setp.lt.u32 %p1, %r1, 32;
@!%p1 bra CONSUME;
mul.lo.u32 %r5, %r1, 3;
mov.u32 %r3, buf;
mad.lo.u32 %r4, %r1, 4, %r3;
st.shared.u32 [%r4], %r5;
bar.arrive 3, 64;
ret;
CONSUME:
bar.sync 3, 64;
ld.shared.u32 %r7, [buf+28];
st.global.u32 [%rd1], %r7;
ret;
""",
        "p",
        head=HEAD,
    )
    out = np.zeros(1, np.uint32)
    ran = run(text, {"p": out}, block=(64, 1, 1), mode=mode)
    assert ran.ended and not ran.findings and out[0] == 21


@pytest.mark.parametrize("mode", MODES)
def test_predicates_are_joined(mode):
    text = kernel(
        START
        + """
setp.lt.u32 %p1, %r1, 70;
bar.red.popc.u32 %r2, 0, %p1;
bar.red.and.pred %p2, 0, %p1;
bar.red.or.pred %p3, 0, !%p1;
selp.u32 %r3, 1000, 0, %p2;
selp.u32 %r4, 500, 0, %p3;
add.u32 %r2, %r2, %r3;
add.u32 %r2, %r2, %r4;
mad.wide.u32 %rd2, %r1, 4, %rd1;
st.global.u32 [%rd2], %r2;
ret;
""",
        "p",
    )
    out = np.zeros(96, np.uint32)
    ran = run(text, {"p": out}, block=(96, 1, 1), mode=mode)
    assert ran.ended and not ran.findings and set(out) == {570}


@pytest.mark.parametrize("mode", MODES)
def test_threads_that_have_exited_are_not_waited_for(mode):
    # Warp 2 exits as a whole, warp 1 has half of its threads left, warp 3 has 8 threads in all.
    text = kernel(
        START
        + """
setp.ge.u32 %p1, %r1, 48;
setp.lt.u32 %p2, %r1, 96;
and.pred %p1, %p1, %p2;
@%p1 bra OUT;
barrier.sync 0;
mad.wide.u32 %rd2, %r1, 4, %rd1;
st.global.u32 [%rd2], 1;
OUT:
ret;
""",
        "p",
    )
    out = np.zeros(104, np.uint32)
    ran = run(text, {"p": out}, block=(104, 1, 1), mode=mode)
    assert ran.ended
    assert np.array_equal(out == 1, (np.arange(104) < 48) | (np.arange(104) >= 96))


@pytest.mark.parametrize("mode", MODES)
def test_threads_of_a_warp_that_parted_arrive_one_by_one(mode):
    text = kernel(
        START
        + """
mov.u32 %r2, 7;
setp.lt.u32 %p1, %r1, 5;
@%p1 bra A;
barrier.sync 2;
bra B;
A: barrier.sync 2;
B: mad.wide.u32 %rd2, %r1, 4, %rd1;
st.global.u32 [%rd2], %r2;
ret;
""",
        "p",
    )
    out = np.zeros(64, np.uint32)
    ran = run(text, {"p": out}, block=(64, 1, 1), mode=mode)
    assert ran.ended and not ran.findings and set(out) == {7}


def test_a_warp_that_parted_may_not_meet_an_aligned_barrier():
    text = kernel(START + "setp.lt.u32 %p1, %r1, 5; @%p1 bar.sync 1, 32; ret;", "p")
    out = np.zeros(1, np.uint32)
    assert "DIVERGED" in run(text, {"p": out}).kinds()


def test_different_counts_for_one_generation_are_found():
    text = kernel(
        START
        + """
setp.lt.u32 %p1, %r1, 32;
@%p1 bra A;
bar.sync 1, 96;
ret;
A: bar.arrive 1, 64;
ret;
""",
        "p",
    )
    ran = run(text, {"p": np.zeros(1, np.uint32)}, block=(64, 1, 1))
    assert "BARRIER_COUNT" in ran.kinds()


@pytest.mark.parametrize("mode", MODES)
def test_a_barrier_that_too_few_reach_ends_nothing(mode):
    text = kernel(START + "bar.sync 1, 96; ret;", "p")
    ran = run(text, {"p": np.zeros(1, np.uint32)}, block=(64, 1, 1), mode=mode)
    assert ran.code == y.R_YIELD and not ran.fault


@pytest.mark.parametrize("body", ["bar.sync 1, 33;", "bar.sync 16;", "bar.sync 1, 0;"])
def test_a_barrier_or_count_that_does_not_exist_stops_the_run(body):
    ran = run(kernel(START + body + "ret;", "p"), {"p": np.zeros(1, np.uint32)})
    assert ran.fault == "FAULT_BARRIER"


PAIRS = """mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 6; add.u32 %r3, %r2, {first};
{twice}bar.sync %r3, 64;
ret;"""
EVERY = [("latest", 0), ("earliest", 0), *(("drawn", seed) for seed in range(5))]


@pytest.mark.parametrize("mode, seed", EVERY)
def test_two_pairs_of_warps_at_one_barrier(mode, seed):
    """Which two of four warps meet is luck; with a barrier each it is not."""
    one = PAIRS.format(first=0, twice="").replace("%r3, 64", "1, 64")
    ran = run(kernel(one), block=(128, 1, 1), mode=mode, seed=seed)
    assert ran.kinds() == ["BARRIER_ORDER"]
    ran = run(kernel(PAIRS.format(first=1, twice="bar.sync %r3, 64;\n" * 2)), block=(128, 1, 1),
              mode=mode, seed=seed)  # fmt: skip
    assert ran.ended and not ran.findings


@pytest.mark.parametrize("mode, seed", EVERY)
@pytest.mark.parametrize("answer", [True, False])
def test_a_producer_arrives_again(answer, mode, seed):
    """A second bar.arrive of the producer may count for the first use, but where it has waited for
    the consumer's answer."""
    text = f"""mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; mov.u32 %r2, 0;
    L:
    @%p1 bar.arrive 1, 64;
    @!%p1 bar.sync 1, 64;
    {"@%p1 bar.sync 2, 64;" if answer else ""}
    {"@!%p1 bar.arrive 2, 64;" if answer else ""}
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra L;
    ret;"""
    ran = run(kernel(text), block=(64, 1, 1), mode=mode, seed=seed)
    if answer:
        assert ran.ended and not ran.findings
    else:
        assert {"BARRIER_ORDER", "BARRIER_COUNT"} & set(ran.kinds())
