"""Two lanes of one warp, one of which writes shared memory that the other accesses: bar.warp.sync
orders them, a barrier, or what one tells the other; not that they execute the same instructions."""

from __future__ import annotations

import numpy as np
import pytest
from running import KINDS, Found, kernel, run

from mlagen.emulator import Launch, PtxFinding, emulate
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.meeting import (
    AFTER_READ_WRITE,
    AFTER_WRITE_READ,
    AFTER_WRITE_WRITE,
    LANES,
)

SHARED = ".shared .align 128 .b8 sh[512];\n.shared .align 8 .b64 bar;"
# %r4: a lane's own word; %r5: that of its neighbour; %p1: lane 0.
BEGIN = """
mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; shl.b32 %r3, %r1, 2; mov.u32 %r2, sh;
add.u32 %r4, %r2, %r3; xor.b32 %r5, %r3, 4; add.u32 %r5, %r2, %r5; ld.param.u64 %rd1, [o];
add.u64 %rd3, %rd1, 128;
mov.u32 %r6, bar; @%p1 mbarrier.init.shared.b64 [%r6], 32;
st.shared.u32 [%r4+128], %r1; st.shared.u32 [%r4], 3; bar.sync 0;
"""
MEET = "bar.warp.sync 0xffffffff;"
SHUFFLE = "shfl.sync.idx.b32 %r9, %r1, 0, 31, 0xffffffff;"
BARRIER = "bar.sync 0;"
ARRIVED = (
    "mbarrier.arrive.shared.b64 %rd2, [%r6];\n"
    "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r6], 0; @!%p4 bra WAIT;"
)
WRITE, OTHER = "st.shared.u32 [%r4], %r1;", "st.shared.u32 [%r5], %r1;"
READ, OWN = "ld.shared.u32 %r8, [%r5];", "ld.shared.u32 %r8, [%r4];"
USE = "st.global.u32 [%rd1], %r8;"
MODES = ("latest", "earliest", "random")
NOTHING: list[tuple[int, int]] = []


def found(body: str, mode: str = "latest") -> list[Found]:
    memory = np.zeros(64, np.uint32)
    text = kernel(f"{BEGIN}{body} ret;", "o", head=SHARED, version="8.6")
    ran = run(text, {"o": memory}, mode=mode)
    assert ran.ended
    return [f for f in ran.findings if f.kind == KINDS[y.RACE]]


def told(body: str, mode: str = "latest") -> list[tuple[int, int]]:
    """How the lanes met, and the severity, of each finding; all of them are of lanes."""
    pairs = found(body, mode)
    assert all(f.b & LANES and f.warp == f.other_warp for f in pairs)
    return [(f.b & 3, f.c) for f in pairs]


PAIRS = {
    "a read after a write": (WRITE, READ + USE, AFTER_WRITE_READ),
    "a write after a read": (READ + USE, WRITE, AFTER_READ_WRITE),
    "a write after a write": (WRITE, OTHER, AFTER_WRITE_WRITE),
    "an atomic after a write": (WRITE, "red.shared.add.u32 [%r5], 1;", AFTER_WRITE_WRITE),
    "a write after an atomic": ("red.shared.add.u32 [%r4], 1;", OTHER, AFTER_WRITE_WRITE),
    "a matrix after a write": (
        "st.shared.u32 [%r4], %r1;",
        "and.b32 %r9, %r1, 7; shl.b32 %r9, %r9, 4; add.u32 %r9, %r9, %r2;\n"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r9]; " + USE,
        AFTER_WRITE_READ,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("first", "then", "pair"), PAIRS.values(), ids=PAIRS)
def test_pairs_of_lanes(first: str, then: str, pair: int, mode: str) -> None:
    """Found in every mode, also where the lanes meet in between at an instruction that orders no
    memory: shfl.sync, or ldmatrix itself."""
    for between in ("", SHUFFLE):
        assert told(first + between + then, mode) == [(pair, y.ERROR)]
    for between in (MEET, BARRIER, ARRIVED):
        assert told(first + between + then, mode) == NOTHING


SILENT = {
    "a lane's own word": WRITE + OWN + USE + WRITE,
    "reads": OWN + USE + READ + USE,
    "two atomics": "red.shared.add.u32 [%r4], 1; red.shared.add.u32 [%r5], 1;",
    "volatile accesses": "st.volatile.shared.u32 [%r4], 1; ld.volatile.shared.u32 %r8, [%r5];"
    + USE,
    "other bytes of one word": "st.shared.u16 [%r4], 1; st.shared.u16 [%r5+2], 2;",
    "halves that meet": "setp.lt.u32 %p2, %r1, 16; @%p2 " + WRITE + "@%p2 bar.warp.sync 0xffff;\n"
    "@%p2 " + READ + "@%p2 " + USE,
}  # fmt: skip


@pytest.mark.parametrize("body", SILENT.values(), ids=SILENT)
def test_lanes_without_a_race(body: str) -> None:
    assert told(body) == NOTHING


def test_halves_that_meet_order_their_own_lanes_alone() -> None:
    """What lane 0 wrote is ordered before lane 1, which met it, and not before lane 31."""
    half = "setp.lt.u32 %p2, %r1, 16; @%p1 st.shared.u32 [%r2], 7; @%p2 bar.warp.sync 0xffff;\n"
    assert told(half + "@%p2 ld.shared.u32 %r8, [%r2]; " + USE) == NOTHING
    assert told(half + "ld.shared.u32 %r8, [%r2]; " + USE) == [(AFTER_WRITE_READ, y.ERROR)]


def test_what_one_lane_tells_on_orders_what_it_knows() -> None:
    """Lane 0 meets lanes 0 to 15, then lanes 16 to 31 meet lane 0."""
    chain = (
        "setp.lt.u32 %p2, %r1, 16; setp.ge.u32 %p3, %r1, 16; or.pred %p5, %p1, %p3;\n"
        "@%p2 st.shared.u32 [%r4], 7; @%p2 bar.warp.sync 0xffff; @%p5 bar.warp.sync 0xffff0001;\n"
    )
    assert told(chain + "ld.shared.u32 %r8, [%r2+32]; " + USE) == NOTHING


def test_a_lane_that_has_not_told_its_access() -> None:
    """Lane 1 arrives for all, but has not met lane 0, whose write stays unordered."""
    body = (
        "@%p1 st.shared.u32 [%r2], 7; setp.eq.u32 %p2, %r1, 1;\n"
        "@%p2 mbarrier.arrive.shared.b64 %rd2, [%r6], 32;\n"
        "@!%p1 bra WAIT; bra DONE;\n"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r6], 0; @!%p4 bra WAIT;\n"
        "ld.shared.u32 %r8, [%r2]; st.global.u32 [%rd1], %r8;\nDONE:"
    )
    assert told(body) == [(AFTER_WRITE_READ, y.ERROR)]


ONE = "st.shared.u32 [%r2], {}; ld.shared.u32 %r8, [%r2];" + USE
SAME = {
    "one value, twice": ("st.shared.u32 [%r4], 9; st.shared.u32 [%r5], 9;", AFTER_WRITE_WRITE),
    "what memory has": (READ + USE + "st.shared.u32 [%r4], 3;", AFTER_READ_WRITE),
    "what the lane wrote itself": (ONE.format(9), AFTER_WRITE_READ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "pair"), SAME.values(), ids=SAME)
def test_values_that_are_the_same_whichever_comes_first(body: str, pair: int) -> None:
    assert told(body) == [(pair, y.LETTER)]


def test_what_lanes_write_to_one_place_differs() -> None:
    """A lane reads its own value, or another's."""
    assert told(ONE.format("%r1")) == [(AFTER_WRITE_READ, y.ERROR)]


def test_one_instruction_in_a_loop() -> None:
    """Each lane in its turn stores to one word."""
    loop = (
        "mov.u32 %r9, 0;\nL: setp.eq.u32 %p2, %r9, %r1; @%p2 st.shared.u32 [%r2], %r1; {}\n"
        "add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 4; @%p3 bra L;"
    )
    assert told(loop.format("")) == [(AFTER_WRITE_WRITE, y.ERROR)]
    assert told(loop.format(MEET)) == NOTHING


COPY = (
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 128; cp.async.bulk.commit_group;\n"
    "cp.async.bulk.wait_group 0;"
)


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_that_one_lane_starts(mode: str) -> None:
    """The fence of each lane shows its write to the copy; lane 0 has to know of them."""
    fence, copy = "fence.proxy.async.shared::cta;", "@!%p1 bra DONE;" + COPY + "DONE:"
    assert told(WRITE + fence + MEET + copy, mode) == NOTHING
    assert told(WRITE + fence + BARRIER + copy, mode) == NOTHING
    assert told("@%p1 st.shared.u32 [%r2], 5;" + fence + copy, mode) == NOTHING
    assert told(WRITE + fence + copy, mode) == [(AFTER_WRITE_READ, y.ERROR)]
    assert told(WRITE + fence + SHUFFLE + copy, mode) == [(AFTER_WRITE_READ, y.ERROR)]


@pytest.mark.parametrize("mode", MODES)
def test_what_one_lane_fetches(mode: str) -> None:
    """A copy, and cp.async, overwrite what other lanes have read."""
    copies = {
        "cp.async": "@%p1 cp.async.ca.shared.global [%r2+4], [%rd3], 4; cp.async.wait_all;",
        "bulk": "fence.proxy.async; @!%p1 bra DONE;\n"
        "mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r6], 32;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes\n"
        " [%r2], [%rd3], 32, [%r6];\nDONE:",
    }
    for copy in copies.values():
        assert told(OWN + USE + MEET + copy, mode) == NOTHING
        assert told(OWN + USE + copy, mode) == [(AFTER_READ_WRITE, y.ERROR)]


@pytest.mark.parametrize("mode", MODES)
def test_an_mbarrier_that_one_lane_makes(mode: str) -> None:
    """The other lanes come to it behind a meeting."""
    body = (
        "@%p1 mbarrier.init.shared.b64 [%r6+256], 32; fence.mbarrier_init.release.cluster; {}\n"
        "mbarrier.arrive.shared.b64 %rd2, [%r6+256];"
    ).replace("%r6+256", "%r2+256")
    assert told(body.format(MEET), mode) == NOTHING
    assert told(body.format(SHUFFLE), mode) == [(AFTER_WRITE_WRITE, y.ERROR)]
    assert told(body.format(""), mode) == [(AFTER_WRITE_WRITE, y.ERROR)]


def test_the_finding_in_words() -> None:
    """Lanes, both lines, and what orders them."""
    text = (
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .b32 %r<6>; .shared .align 4 .b32 sh[32];\n"
        "mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, sh; add.u32 %r1, %r1, %r2;\n"
        "st.shared.u32 [%r1], %r0;\n"
        "ld.shared.u32 %r3, [%r2+8];\n"
        "ret;\n}\n"
    )
    (one,) = emulate(text, Launch((1, 1, 1), (32, 1, 1), [])).findings
    assert isinstance(one, PtxFinding)
    assert (one.kind, one.severity, one.line, one.other_line) == ("race-raw", "error", 9, 8)
    assert one.needs == "bar.warp.sync"
    assert "lane 0 reads shared memory" in one.message and "lane 2's st.shared" in one.message
