"""A warpgroup meets at its wgmma: what its warps store before it, with and without a barrier."""

import numpy as np
import pytest
from hopper_arithmetic.inputs import InputSet
from products import wgmma
from running import kernel, run

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.meeting import MEET
from mlagen.names import cut, short_name

HEAD = ".shared .align 128 .b8 b[256];"
# B is zero, then warp 3 alone writes ones into it, after a while.
START = """
ld.param.u64 %rd1, [p];
mov.u32 %r0, %tid.x;
shl.b32 %r1, %r0, 1;
mov.u32 %r2, b;
add.u32 %r3, %r2, %r1;
mov.b16 %h0, 0;
mov.b16 %h1, 0x3F80;
mov.b32 %r4, 0x3F803F80;
mov.b32 %r8, %r4;
st.shared.b16 [%r3], %h0;
fence.proxy.async;
bar.sync 0;
shr.u32 %r5, %r2, 4;
or.b32 %r5, %r5, 0x80000;
cvt.u64.u32 %rd2, %r5;
or.b64 %rd2, %rd2, 0x800000000;
setp.lt.u32 %p0, %r0, 96;
mov.u32 %r6, 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
"""
LATE = """
@%p0 bra after;
loop: add.u32 %r6, %r6, 1;
setp.lt.u32 %p1, %r6, 50;
@%p1 bra loop;
shl.b32 %r7, %r0, 3;
sub.u32 %r7, %r7, 768;
add.u32 %r7, %r7, %r2;
st.shared.v2.b32 [%r7], {%r8, %r8};
fence.proxy.async;
after:
"""
PRODUCT = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, "
    "{%r4, %r4, %r4, %r4}, %rd2, 1, 1, 1, 0;"
)
END = """
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %rd3, %r0, 16;
add.u64 %rd1, %rd1, %rd3;
st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};
ret;
"""
FENCE = "wgmma.fence.sync.aligned;\n"


def ran(*parts, mode="latest"):
    """The races of a kernel, each as severity and whether a meeting orders it, and D."""
    out = np.zeros((64, 8), np.float32)
    found = run(
        kernel("".join((START, *parts, END)), "p", head=HEAD),
        {"p": out},
        block=(128, 1, 1),
        mode=mode,
    )
    assert found.ended
    assert set(found.kinds()) <= {"RACE"}
    return {(f.c, f.b & MEET != 0) for f in found.findings}, out


@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
def test_a_store_before_the_fence_is_seen_by_all_and_told_by_the_letter(mode):
    races, out = ran(LATE, FENCE, PRODUCT, mode=mode)
    assert races == {(y.LETTER, True)}
    assert (out == 16).all()


@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
def test_a_barrier_orders_it(mode):
    races, out = ran(LATE, "bar.sync 0;\n", FENCE, PRODUCT, mode=mode)
    assert not races
    assert (out == 16).all()


def test_a_store_after_the_fence_is_a_race_on_hardware():
    races, _ = ran(FENCE, LATE, PRODUCT)
    assert (y.ERROR, False) in races


def test_a_store_between_two_products_is_a_race_on_hardware():
    races, _ = ran(FENCE, PRODUCT, LATE, PRODUCT)
    assert (y.ERROR, False) in races


def test_the_proxy_fence_is_still_asked_for():
    races, _ = ran(LATE.replace("fence.proxy.async;", ""), FENCE, PRODUCT)
    assert (y.ERROR, False) in races


def test_another_warpgroup_has_no_part_in_it():
    """The first warp of a second warpgroup stores: no meeting orders that."""
    out = np.zeros((64, 8), np.float32)
    late = LATE.replace("after:", "exit; after:").replace("768", "1024")
    start = START.replace("bar.sync 0;", "bar.sync 0;\nsetp.lt.u32 %p0, %r0, 128;")
    start = start.replace("setp.lt.u32 %p0, %r0, 96;", "")
    start = start.replace("st.shared.b16 [%r3], %h0;", "@%p2 st.shared.b16 [%r3], %h0;")
    start = start.replace("mov.b16 %h0, 0;", "mov.b16 %h0, 0;\nsetp.lt.u32 %p2, %r0, 128;")
    text = kernel(start + late + FENCE + PRODUCT + END, "p", head=HEAD)
    found = run(text, {"p": out}, block=(160, 1, 1))
    assert {(f.c, f.b & MEET != 0) for f in found.findings} == {(y.ERROR, False)}


def test_names_of_functions():
    assert short_name("_ZN4cute4gemmINS_5tupleEEEvT_") == "cute::gemm"
    assert short_name("_Z4spinIiEvT_") == "spin"
    assert short_name("plain") == "plain"
    assert short_name("") == ""
    assert len(cut("x" * 4000)) == 60


@pytest.mark.parametrize(
    ("mode", "width"), [(1, 128), (2, 64), (3, 32)], ids=lambda number: str(number)
)
def test_an_operand_begins_with_the_pattern_of_its_swizzle(mode: int, width: int) -> None:
    """Inside of the first of its 8 rows too, where a later step of K does; PTX ISA, base offset."""
    text = wgmma(InputSet("bf16", "bf16", "f32", 25), "registers")
    words = np.zeros(64 * 16, np.uint16)
    for beside, fault in ((0, ""), (width // 2, ""), (width, "FAULT_DESCRIPTOR"), (8 * width, "")):
        edit = f"add.s64 %rd21, %rd21, {beside // 16}; or.b64 %rd21, %rd21, {mode << 62:#x};"
        made = text.replace("wgmma.fence", f"{edit}\nwgmma.fence", 1)
        tiles = {"a": words, "b": words.copy(), "c": np.zeros(512, np.float32),
                 "d": np.zeros(512, np.float32)}  # fmt: skip
        ran = run(made, tiles, block=(128, 1, 1))
        assert ran.fault == fault, (beside, ran.fault)
