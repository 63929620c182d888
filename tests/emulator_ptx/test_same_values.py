"""Stores of two warps to one place: of the same value they are harmless, of others they are not."""

from __future__ import annotations

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx import layout as y

SHARED = ".shared .align 16 .b8 sh[256];"


def raced(store: str, grid: int = 1) -> list[int]:
    """Severities of races between two warps (of two blocks with `grid` 2) that store."""
    memory = np.zeros(64, np.uint32)
    text = kernel(
        f"""mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r6, %ctaid.x; mov.u32 %r3, 9;
        add.u32 %r2, %r2, %r6; mov.u64 %rd3, 0x900000009; ld.param.u64 %rd1, [o];
        cvt.u16.u32 %h1, %r2; {store} bar.sync 0; ret;""",
        "o",
        head=SHARED,
    )
    blocks = ((grid, 1, 1), (64 // grid, 1, 1))
    ran = run(text, {"o": memory}, grid=blocks[0], block=blocks[1])
    assert ran.ended and {found.kind for found in ran.findings} <= {"RACE"}
    return [found.c for found in ran.findings]


SAME = ["st.shared.u32 [sh], 9;", "st.shared.v2.u32 [sh+8], {%r3, 9};", "st.shared.u64 [sh], %rd3;",
        "st.shared.u8 [sh+1], %r3;", "st.shared.u16 [sh+2], 3;", "st.shared.v4.u32 [sh], "
        "{%r3, %r3, %r3, 1};"]  # fmt: skip
OTHER = ["st.shared.u32 [sh], %r2;", "st.shared.v2.u32 [sh+8], {9, %r2};",
         "st.shared.u16 [sh+2], %h1;", "st.shared.v4.u32 [sh], {%r2, %r3, %r3, %r3};"]  # fmt: skip


@pytest.mark.parametrize("store", SAME)
def test_the_same_value(store: str) -> None:
    assert set(raced(store)) == {y.LETTER}


@pytest.mark.parametrize("store", OTHER)
def test_other_values(store: str) -> None:
    """The gravest of the pair's meetings tells."""
    assert set(raced(store)) == {y.ERROR}


def test_one_place_of_several() -> None:
    """Most lanes store the same; one pair does not, and that is what is told."""
    store = """mov.u32 %r4, sh; and.b32 %r5, %r1, 31; mad.lo.u32 %r4, %r5, 4, %r4;
    setp.eq.u32 %p1, %r5, 20; selp.b32 %r7, %r2, 5, %p1; st.shared.u32 [%r4], %r7;"""
    assert raced(store) == [y.ERROR]
    assert raced(store.replace("%r2, 5", "8, 5")) == [y.LETTER]


@pytest.mark.parametrize(("lanes", "told"), [(0, False), (7, True), (32, False)])
def test_a_guard_that_keeps_all_lanes_out_is_no_divergence(lanes: int, told: bool) -> None:
    text = kernel(
        f"""mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 31; setp.lt.u32 %p1, %r1, {lanes};
        @%p1 wgmma.fence.sync.aligned; ret;"""
    )
    assert ("DIVERGED" in run(text, {}, block=(128, 1, 1)).kinds()) is told


@pytest.mark.parametrize("mode", ["latest", "earliest", "drawn"])
@pytest.mark.parametrize("value, grid, told", [
    ("7", 1, []), ("%r1", 1, [y.ERROR]), ("7", 2, [y.LETTER]), ("%r2", 2, [y.ERROR]),
])  # fmt: skip
def test_of_global_memory(mode: str, value: str, grid: int, told: list[int]) -> None:
    """Warps of a block may all store a result that they have; blocks are told of it by the letter.
    No instruction of the kernel orders anything."""
    text = f"""ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5;
    mov.u32 %r2, %ctaid.x; st.global.u32 [%rd1], {value}; ret;"""
    memory = np.zeros(1, np.uint32)
    block = 64 if grid == 1 else 32
    found = run(kernel(text, "p"), {"p": memory}, grid=(grid, 1, 1), block=(block, 1, 1), mode=mode)
    assert [(one.kind, one.c) for one in found.findings] == [("RACE", c) for c in told]
