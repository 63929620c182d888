"""cp.async, bulk copies and their groups in the PTX emulator."""

import ml_dtypes
import numpy as np
import pytest
from running import kernel, run

MODES = ("latest", "earliest", "drawn")
HEAD = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 buf[8192];"
START = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
ld.param.u64 %rd1, [p];
ld.param.u64 %rd2, [q];
mov.u32 %r3, buf;
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;\n@!%p9 bra W;\n"


def numbers(count, dtype=np.uint32, seed=1):
    return np.random.default_rng(seed).integers(0, 200, count).astype(dtype)


def out_16(text):
    """Each lane stores the 16 bytes of its place in the buffer to q."""
    return text + (
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r4];\n"
        "st.global.v4.u32 [%rd4], {%r10, %r11, %r12, %r13};\nret;"
    )


PLACES = """
mad.lo.u32 %r4, %r1, 16, %r3;
mad.wide.u32 %rd3, %r1, 16, %rd1;
mad.wide.u32 %rd4, %r1, 16, %rd2;
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["cp.async.commit_group; cp.async.wait_group 0;",
                                 "cp.async.wait_all;"])  # fmt: skip
def test_a_lane_copies_16_bytes(mode, end):
    text = START + PLACES + f"cp.async.cg.shared.global.L2::128B [%r4], [%rd3], 16; {end}"
    source, out = numbers(128), np.zeros(128, np.uint32)
    ran = run(kernel(out_16(text), "p, q", head=HEAD), {"p": source, "q": out}, mode=mode)
    assert ran.ended and not ran.findings
    assert np.array_equal(out, source)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_read_becomes_zeros(mode):
    # Lane l reads l % 17 of its 16 bytes; lanes from 24 on ignore the source, at a bad address.
    text = (
        START
        + PLACES
        + """
rem.u32 %r5, %r1, 17;
setp.ge.u32 %p2, %r1, 24;
selp.b64 %rd3, 64, %rd3, %p2;
cp.async.cg.shared.global [%r4], [%rd3], 16, %p2;
cp.async.ca.shared.global [%r4], [%rd4], 16, 0;
cp.async.wait_all;
@%p2 bra DONE;
cp.async.cg.shared.global [%r4], [%rd3], 16, %r5;
cp.async.wait_all;
DONE:
"""
    )
    source, out = numbers(512, np.uint8), np.ones(512, np.uint8)
    ran = run(kernel(out_16(text), "p, q", head=HEAD), {"p": source, "q": out}, mode=mode)
    assert ran.ended
    wanted = source.reshape(32, 16).copy()
    for lane in range(32):
        wanted[lane, lane % 17 if lane < 24 else 0 :] = 0
    assert np.array_equal(out.reshape(32, 16), wanted)


@pytest.mark.parametrize("size", [4, 8])
def test_small_copies(size):
    text = (
        START
        + f"""
mad.lo.u32 %r4, %r1, {size}, %r3;
mad.wide.u32 %rd3, %r1, {size}, %rd1;
mad.wide.u32 %rd4, %r1, {size}, %rd2;
cp.async.ca.shared.global [%r4], [%rd3], {size};
cp.async.wait_all;
ld.shared.u{8 * size} %{"r" if size == 4 else "rd"}9, [%r4];
st.global.u{8 * size} [%rd4], %{"r" if size == 4 else "rd"}9;
ret;"""
    )
    source, out = numbers(8 * size), np.zeros(8 * size, np.uint32)
    ran = run(kernel(text, "p, q", head=HEAD), {"p": source, "q": out})
    assert ran.ended and not ran.findings and np.array_equal(out, source)


def test_latest_lands_a_group_no_earlier_than_its_wait():
    # The second group is not waited for: in mode latest its bytes are not there, in earliest they
    # are, and either way somebody has to say so.
    text = (
        START
        + PLACES
        + """
st.shared.v4.u32 [%r4], {%r3, %r3, %r3, %r3};
st.shared.v4.u32 [%r4+1024], {%r3, %r3, %r3, %r3};
cp.async.cg.shared.global [%r4], [%rd3], 16; cp.async.commit_group;
cp.async.cg.shared.global [%r4+1024], [%rd3], 16; cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.u32 %r10, [%r4];
ld.shared.u32 %r11, [%r4+1024];
cp.async.wait_group 0;
st.global.v2.u32 [%rd4], {%r10, %r11};
ret;"""
    )
    found = {}
    for mode in ("latest", "earliest"):
        source, out = numbers(128), np.zeros(128, np.uint32)
        ran = run(kernel(text, "p, q", head=HEAD), {"p": source, "q": out}, mode=mode)
        assert ran.ended and "RACE" in ran.kinds()
        assert np.array_equal(out[::4], source[::4])
        found[mode] = np.array_equal(out[1::4], source[::4])
    assert found == {"latest": False, "earliest": True}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noinc", [True, False])
def test_an_mbarrier_is_told_of_copies(mode, noinc):
    count = 32 if noinc else 1
    suffix, more = (".noinc", "") if noinc else ("", "mbarrier.arrive.shared::cta.b64 _, [bar];")
    text = (
        START
        + PLACES
        + f"""
@%p1 mbarrier.init.shared::cta.b64 [bar], {count};
bar.sync 0;
setp.ge.u32 %p2, %r1, 32;
@%p2 bra CONSUME;
cp.async.cg.shared.global [%r4], [%rd3], 16;
cp.async.mbarrier.arrive{suffix}.shared::cta.b64 [bar];
@%p1 {more or "mov.u32 %r5, 0;"}
ret;
CONSUME:
sub.u32 %r4, %r4, 512;
sub.u64 %rd4, %rd4, 512;
"""
        + WAIT
    )
    source, out = numbers(128), np.zeros(128, np.uint32)
    ran = run(kernel(out_16(text), "p, q", head=HEAD), {"p": source, "q": out},
              block=(64, 1, 1), mode=mode)  # fmt: skip
    assert ran.ended and not ran.findings
    assert np.array_equal(out, source)


LOAD = (
    """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%p1 bra W;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], BYTES;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [%rd1], 512, [bar];
"""
    + WAIT
)


@pytest.mark.parametrize("mode", MODES)
def test_a_bulk_copy_to_and_fro(mode):
    text = (
        START
        + LOAD.replace("BYTES", "512")
        + """
@!%p1 ret;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [buf], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;"""
    )
    source, out = numbers(128), np.zeros(128, np.uint32)
    ran = run(kernel(text, "p, q", head=HEAD), {"p": source, "q": out}, mode=mode)
    assert ran.ended and not ran.findings
    assert np.array_equal(out, source)


def test_too_few_bytes_expected_leave_a_copy_uncounted():
    text = START + LOAD.replace("BYTES", "256").replace(
        "[buf], [%rd1], 512", "[buf], [%rd1], 256"
    ).replace("W:", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
              "[buf+256], [%rd1+256], 256, [bar];\nW:") + "ret;"  # fmt: skip
    ran = run(kernel(text, "p, q", head=HEAD), {"p": numbers(128), "q": numbers(1)})
    assert "BYTES_UNCOUNTED" in ran.kinds()


def test_too_many_bytes_expected_end_nothing():
    text = START + LOAD.replace("BYTES", "528") + "ret;"
    ran = run(kernel(text, "p, q", head=HEAD), {"p": numbers(128), "q": numbers(1)})
    assert not ran.ended and not ran.fault


@pytest.mark.parametrize("mode", MODES)
def test_a_group_that_reads_may_still_be_overwritten_after_its_wait(mode):
    text = (
        START
        + """
mad.lo.u32 %r4, %r1, 4, %r3;
st.shared.u32 [%r4], %r1;
fence.proxy.async.shared::cta;
bar.sync 0;
@!%p1 bra J;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [buf], 128;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
J: bar.sync 0;
st.shared.u32 [%r4], 99;
@%p1 cp.async.bulk.wait_group 0;
ret;"""
    )
    for wanted in (text, text.replace("cp.async.bulk.wait_group.read 0;", "")):
        out = np.zeros(32, np.uint32)
        ran = run(kernel(wanted, "p, q", head=HEAD), {"p": numbers(1), "q": out}, mode=mode)
        assert ran.ended
        if wanted is text:
            assert not ran.findings and np.array_equal(out, np.arange(32))
        else:
            assert "RACE" in ran.kinds()
            if mode == "latest":
                assert (out == 99).all()


def test_a_store_that_nobody_waits_for_is_found_at_the_end():
    text = (
        START
        + """
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [buf], 128;
@%p1 cp.async.bulk.commit_group;
ret;"""
    )
    ran = run(kernel(text, "p, q", head=HEAD), {"p": numbers(1), "q": numbers(32)})
    assert ran.ended and "PENDING_AT_EXIT" in ran.kinds()


CASES = [
    ("add", "u32", np.uint32, np.add),
    ("min", "s32", np.int32, np.minimum),
    ("max", "u64", np.uint64, np.maximum),
    ("and", "b32", np.uint32, np.bitwise_and),
    ("or", "b64", np.uint64, np.bitwise_or),
    ("xor", "b32", np.uint32, np.bitwise_xor),
    ("inc", "u32", np.uint32, lambda old, new: np.where(old >= new, 0, old + 1)),
    ("dec", "u32", np.uint32, lambda old, new: np.where((old == 0) | (old > new), new, old - 1)),
    ("add", "f32", np.float32, np.add),
    ("add", "f64", np.float64, np.add),
    ("add.noftz", "f16", np.float16, np.add),
    ("add.noftz", "bf16", ml_dtypes.bfloat16, np.add),
    ("max", "bf16", ml_dtypes.bfloat16, np.maximum),
    ("min", "f16", np.float16, np.minimum),
]


@pytest.mark.parametrize(("how", "kind", "dtype", "wanted"), CASES)
def test_reductions(how, kind, dtype, wanted):
    text = (
        START
        + LOAD.replace("BYTES", "512")
        + f"""
@!%p1 ret;
cp.reduce.async.bulk.global.shared::cta.bulk_group.{how}.{kind} [%rd2], [buf], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;"""
    )
    size = np.dtype(dtype).itemsize
    rng = np.random.default_rng(7)
    source, old = (rng.integers(-99, 99, 512 // size).astype(dtype) for _ in range(2))
    if np.issubdtype(dtype, np.floating) or kind == "bf16":
        source, old = (source / dtype(7)).astype(dtype), (old / dtype(3)).astype(dtype)
    out = old.copy()
    ran = run(kernel(text, "p, q", head=HEAD), {"p": source, "q": out})
    assert ran.ended and not ran.findings
    assert np.array_equal(out, wanted(old, source).astype(dtype))


def test_a_mask_of_bytes():
    text = (
        START
        + LOAD.replace("BYTES", "512")
        + """
@!%p1 ret;
mov.b16 %h1, 0x8421;
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [buf], 512, %h1;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;"""
    )
    source, out = numbers(512, np.uint8) + np.uint8(1), np.zeros(512, np.uint8)
    ran = run(kernel(text, "p, q", head=HEAD), {"p": source, "q": out})
    chosen = (0x8421 >> (np.arange(512) % 16)) & 1 == 1
    assert ran.ended and np.array_equal(out, np.where(chosen, source, 0))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("[buf], [%rd1], 512", "[buf], [%rd1], 520"), "FAULT_ALIGN"),
        (("[buf], [%rd1], 512", "[buf+8], [%rd1], 512"), "FAULT_ALIGN"),
        (("[buf], [%rd1], 512", "[buf], [%rd1+8], 16"), "FAULT_ALIGN"),
        (("[buf], [%rd1], 512", "[buf], [%rd1+16], 512"), "FAULT_GLOBAL"),
        (("[buf], [%rd1], 512", "[buf+7936], [%rd1], 512"), "FAULT_SHARED"),
        (("[buf], [%rd1], 512", "[buf], [%rd1], 0xfffffff0"), "FAULT_SHARED"),
    ],
)
def test_what_does_not_fit_stops_the_run(change, fault):
    text = START + LOAD.replace("BYTES", "512").replace(*change) + "ret;"
    ran = run(kernel(text, "p, q", head=HEAD), {"p": numbers(128), "q": numbers(1)})
    assert ran.fault == fault
