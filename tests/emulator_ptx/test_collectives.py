"""What lanes exchange, in whole warps and in parts of them."""

from __future__ import annotations

import numpy as np
import pytest
from lane_rows import copied
from running import Ran, kernel, run

LANES = np.arange(32)
HALVES = "setp.lt.u32 %p9, %r40, 16;"


def shown(body: str, values: np.ndarray | None = None, **how: object) -> tuple[Ran, np.ndarray]:
    """Run a body with a lane's value in %r10; what %r11 and %p1 are then, for each lane."""
    source = (LANES if values is None else values).astype(np.uint32).reshape(32, 1)
    result = np.zeros((32, 2), np.uint32)
    ran = copied(
        f"""ld.global.u32 %r10, [%rd1]; mov.u32 %r11, 99; setp.ne.u32 %p1, %r40, %r40; {body}
        END: selp.u32 %r12, 1, 0, %p1; st.global.v2.u32 [%rd2], {{%r11, %r12}};""",
        source,
        result,
        **how,
    )
    return ran, result


def source_of(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """PTX ISA 9.0, shfl.sync, the pseudocode."""
    bval, cval, segment = b & 31, c & 31, (c >> 8) & 31
    limit = (lane & segment) | (cval & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        j = lane - bval
        fine = j >= limit
    elif mode == "down":
        j = lane + bval
        fine = j <= limit
    elif mode == "bfly":
        j = lane ^ bval
        fine = j <= limit
    else:
        j = lowest | (bval & ~segment)
        fine = j <= limit
    return (j, True) if fine else (lane, False)


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize(
    ("b", "c"),
    [(0, 31), (1, 31), (1, 0), (7, 31), (5, 0x181F), (3, 0x1C03), (17, 0x100F), (33, 31)],
)
def test_shfl(mode: str, b: int, c: int) -> None:
    values = np.random.default_rng(b).integers(0, 1 << 32, 32)
    ran, result = shown(f"shfl.sync.{mode}.b32 %r11|%p1, %r10, {b}, {c}, -1;", values)
    assert ran.ended and not ran.findings
    for lane in range(32):
        j, fine = source_of(mode, lane, b, c)
        assert result[lane].tolist() == [values[j], fine]


def test_shfl_in_place_and_without_sync() -> None:
    ran, result = shown(
        "shfl.sync.idx.b32 %r10, %r10, %r10, 31, -1; shfl.idx.b32 %r11, %r10, 3, 31;", 31 - LANES
    )
    assert ran.ended and (result[:, 0] == 31 - 28).all() == ((31 - LANES)[31 - LANES][3] == 3)
    assert (result[:, 0] == 3).all()


def test_a_source_lane_that_does_not_take_part() -> None:
    """Its value is unpredictable: the lane's own here, and a finding."""
    ran, result = shown(f"{HALVES} @%p9 shfl.sync.bfly.b32 %r11, %r10, 16, 31, 0xFFFF;")
    assert ran.kinds() == ["DIVERGED"]
    assert result[:16, 0].tolist() == list(range(16)) and (result[16:, 0] == 99).all()


def test_half_a_warp_by_each_of_two_ways() -> None:
    """The halves come to one shfl.sync with the full mask, one of them later."""
    ran, result = shown(
        f"""{HALVES} @%p9 bra LOW; add.u32 %r10, %r10, 100; bra MEET;
        LOW: add.u32 %r10, %r10, 200; add.u32 %r10, %r10, 1;
        MEET: shfl.sync.bfly.b32 %r11, %r10, 16, 31, -1;"""
    )
    assert ran.ended and not ran.findings
    expected = [*(LANES[16:] + 100), *(LANES[:16] + 201)]
    assert result[:, 0].tolist() == expected


def test_halves_that_come_one_after_the_other() -> None:
    """The lanes of a loop leave it at different times; all meet at the vote behind it. A guard
    parts them at the instruction itself."""
    ran, result = shown(
        """mov.u32 %r1, 0;
        LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, %r10; @%p2 bra LOOP;
        vote.sync.ballot.b32 %r11, %p9, -1;""".replace("%p9", "!%p2")
    )
    assert ran.ended and not ran.findings and (result[:, 0] == 0xFFFFFFFF).all()


def test_two_masks_at_one_instruction() -> None:
    """Lanes of two groups meet at one instruction, each with its own mask."""
    ran, result = shown(
        f"""{HALVES} selp.b32 %r1, 0xFFFF, 0xFFFF0000, %p9;
        redux.sync.add.u32 %r11, %r10, %r1; bar.warp.sync %r1;"""
    )
    assert ran.ended and not ran.findings
    assert result[:, 0].tolist() == [sum(range(16))] * 16 + [sum(range(16, 32))] * 16


def test_two_masks_whose_lanes_come_in_turns() -> None:
    """Even and odd lanes are groups; of each, half comes by another way."""
    ran, result = shown(
        f"""and.b32 %r2, %r40, 1; setp.eq.u32 %p3, %r2, 0;
        selp.b32 %r1, 0x55555555, 0xAAAAAAAA, %p3;
        {HALVES} @%p9 bra LOW; add.u32 %r10, %r10, 0; bra MEET;
        LOW: add.u32 %r10, %r10, 0; add.u32 %r10, %r10, 0;
        MEET: redux.sync.add.u32 %r11, %r10, %r1;"""
    )
    assert ran.ended and not ran.findings
    assert result[:, 0].tolist() == [sum(range(lane % 2, 32, 2)) for lane in range(32)]


def test_lanes_that_have_exited_are_not_waited_for() -> None:
    held = np.zeros(32, np.uint32)
    text = kernel(
        """ld.param.u64 %rd1, [p]; mov.u32 %r1, %laneid; mad.wide.u32 %rd2, %r1, 4, %rd1;
        setp.gt.u32 %p1, %r1, 20; @%p1 ret; redux.sync.add.u32 %r2, %r1, -1; bar.warp.sync -1;
        st.global.u32 [%rd2], %r2; ret;""",
        "p",
    )
    ran = run(text, {"p": held})
    assert ran.ended and held.tolist() == [210] * 21 + [0] * 11


def test_a_lane_that_never_comes_is_a_deadlock() -> None:
    text = kernel(
        """mov.u32 %r1, %laneid; setp.eq.u32 %p1, %r1, 0; @%p1 bra OTHER;
        bar.warp.sync -1; ret; OTHER: shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; ret;"""
    )
    assert not run(text).ended


def test_a_lane_outside_its_own_mask() -> None:
    ran, _ = shown("vote.sync.ballot.b32 %r11, %p1, 0xFFFF;")
    assert ran.kinds() == ["DIVERGED"]


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF, 0x80000001, 0x00F0F000])
def test_votes(mask: int) -> None:
    taking = (mask >> LANES) & 1 == 1
    for limit in (0, 13, 32):
        holds = limit > LANES
        for mode, answer in (
            ("all", holds[taking].all()),
            ("any", holds[taking].any()),
            ("uni", holds[taking].all() or not holds[taking].any()),
        ):
            for sign in ("", "!"):
                asked = "lt" if not sign else "ge"
                _, result = shown(
                    f"""shr.u32 %r1, {mask}, %r40; and.b32 %r1, %r1, 1; setp.eq.u32 %p4, %r1, 1;
                    setp.{asked}.u32 %p2, %r40, {limit};
                    @%p4 vote.sync.{mode}.pred %p1, {sign}%p2, {mask};"""
                )
                assert (result[taking, 1] == answer).all() and not result[~taking, 1].any()
        _, result = shown(
            f"""shr.u32 %r1, {mask}, %r40; and.b32 %r1, %r1, 1; setp.eq.u32 %p4, %r1, 1;
            setp.lt.u32 %p2, %r40, {limit}; @%p4 vote.sync.ballot.b32 %r11, %p2, {mask};"""
        )
        expected = sum(1 << int(lane) for lane in LANES[taking & holds])
        assert (result[taking, 0] == expected).all() and (result[~taking, 0] == 99).all()


def test_match() -> None:
    values = np.random.default_rng(2).integers(0, 4, 32)
    _, result = shown("match.any.sync.b32 %r11, %r10, -1;", values)
    for lane in range(32):
        assert result[lane, 0] == sum(1 << k for k in range(32) if values[k] == values[lane])
    _, result = shown(
        "cvt.u64.u32 %rd9, %r10; shl.b64 %rd9, %rd9, 40; match.any.sync.b64 %r11, %rd9, -1;", values
    )
    for lane in range(32):
        assert result[lane, 0] == sum(1 << k for k in range(32) if values[k] == values[lane])
    _, result = shown("match.all.sync.b32 %r11|%p1, %r10, -1;", values)
    assert (result == 0).all()
    _, result = shown("match.all.sync.b32 %r11|%p1, %r10, -1;", np.full(32, 6))
    assert (result == [0xFFFFFFFF, 1]).all()


@pytest.mark.parametrize(
    ("op", "kind"),
    [("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32"),
     ("and", "b32"), ("or", "b32"), ("xor", "b32")],
)  # fmt: skip
def test_redux(op: str, kind: str) -> None:
    values = np.random.default_rng(3).integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    typed = values.view(np.int32) if kind == "s32" else values
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                "or": np.bitwise_or, "xor": np.bitwise_xor}[op]  # fmt: skip
    _, result = shown(f"redux.sync.{op}.{kind} %r11, %r10, -1;", values)
    assert (
        result[:, 0] == np.uint32(int(function.reduce(typed.astype(typed.dtype))) & 0xFFFFFFFF)
    ).all()


@pytest.mark.parametrize("words", ["", ".abs", ".NaN", ".abs.NaN"])
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("op", ["min", "max"])
def test_redux_of_floats(op: str, words: str, nan: bool) -> None:
    values = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    values[7] = -0.0
    if nan:
        values[9] = np.nan
    typed = np.abs(values) if "abs" in words else values
    _, result = shown(f"redux.sync.{op}{words}.f32 %r11, %r10, -1;", values.view(np.uint32))
    if nan and "NaN" in words:
        assert (result[:, 0] == 0x7FFFFFFF).all()
    else:
        expected = np.nanmin(typed) if op == "min" else np.nanmax(typed)
        assert (result[:, 0].view(np.float32) == expected).all()


def test_elect_and_activemask_in_a_branch() -> None:
    ran, result = shown(f"""{HALVES} @%p9 bra END; activemask.b32 %r1; elect.sync %r11|%p1, %r1;""")
    assert ran.ended and not ran.findings
    assert result[:16].tolist() == [[99, 0]] * 16
    assert result[16:].tolist() == [[16, int(lane == 16)] for lane in range(16, 32)]
    _, result = shown(f"{HALVES} @%p9 bra END; activemask.b32 %r11;")
    assert (result[16:, 0] == 0xFFFF0000).all() and (result[:16, 0] == 99).all()


def test_lanes_meet_at_a_barrier_at_two_places() -> None:
    """bar.warp.sync in both arms of a branch: all lanes are there before any goes on."""
    held = np.zeros(32, np.uint32)
    text = kernel(
        """ld.param.u64 %rd1, [p]; mov.u32 %r1, %laneid; mad.wide.u32 %rd2, %r1, 4, %rd1;
        setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
        st.global.u32 [%rd2], 7; bar.warp.sync -1; ld.global.u32 %r2, [%rd1]; bra END;
        LOW: st.global.u32 [%rd2], 8; bar.warp.sync -1; ld.global.u32 %r2, [%rd1+64];
        END: st.global.u32 [%rd2], %r2; ret;""",
        "p",
    )
    ran = run(text, {"p": held})
    assert ran.ended and held.tolist() == [7] * 16 + [8] * 16
