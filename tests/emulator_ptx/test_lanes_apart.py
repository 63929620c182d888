"""A lane that arrives for its warp tells of what the others did only where all have met."""

from __future__ import annotations

import numpy as np
import pytest
from running import Ran, kernel, run

SHARED = ".shared .align 128 .b8 sh[512];\n.shared .align 8 .b64 bar;"
# Warp 0 makes the mbarrier, and both warps meet once.
BEGIN = """
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.eq.u32 %p1, %r2, 0; setp.ge.u32 %p2, %r1, 32;
shl.b32 %r3, %r2, 2; mov.u32 %r4, sh; add.u32 %r4, %r4, %r3; mov.u32 %r6, bar;
setp.eq.u32 %p3, %r1, 0; @%p3 mbarrier.init.shared.b64 [%r6], COUNT;
@!%p2 st.shared.u32 [%r4], 3; @!%p2 st.shared.u32 [%r4+256], 3;
bar.sync 0;
@%p2 bra READER;
"""
STORE = "st.shared.u32 [%r4], %r2; "
MEET = "bar.warp.sync 0xffffffff; "
ARRIVE = "@%p1 mbarrier.arrive.shared.b64 %rd2, [%r6]; "
# Warp 1 waits, and reads or overwrites what warp 0 did.
READ = "ld.shared.u32 %r5, [%r4]; ld.param.u64 %rd1, [o]; st.global.u32 [%rd1], %r5; "
OVERWRITE = "st.shared.u32 [%r4+256], 7; "


def ran(writer: str, reader: str = READ, count: int = 1) -> Ran:
    wait = "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r6], 0; @!%p4 bra WAIT; "
    body = f"{BEGIN.replace('COUNT', str(count))}{writer} ret;\nREADER: {wait}{reader} ret;"
    memory = np.zeros(64, np.uint32)
    found = run(kernel(body, "o", head=SHARED, version="8.6"), {"o": memory}, block=(64, 1, 1))
    assert found.ended
    return found


MET = {
    "bar.warp.sync": STORE + MEET + ARRIVE,
    "a barrier of the warp": STORE + "barrier.sync 1, 32; " + ARRIVE,
    "elect.sync": STORE + "elect.sync %r7|%p5, 0xffffffff; " + ARRIVE,
    "shfl.sync": STORE + "shfl.sync.idx.b32 %r7, %r1, 0, 31, 0xffffffff; " + ARRIVE,
    "lane 0 alone stored": "@%p1 " + STORE + ARRIVE,
    "lane 0 stored once more": STORE + MEET + "@%p1 st.shared.u32 [%r4], 5; " + ARRIVE,
}  # fmt: skip
APART = {
    "nothing": STORE + ARRIVE,
    "a meeting before the stores": MEET + STORE + ARRIVE,
    "half of the lanes meet": STORE + "setp.lt.u32 %p6, %r2, 16; "
    "@%p6 bar.warp.sync 0xffff; " + ARRIVE,
    "a proxy fence": STORE + "fence.proxy.async.shared::cta; " + ARRIVE,
}  # fmt: skip


@pytest.mark.parametrize("writer", MET.values(), ids=MET)
def test_lanes_that_met(writer: str) -> None:
    assert ran(writer).kinds() == []


@pytest.mark.parametrize("writer", APART.values(), ids=APART)
def test_lanes_that_did_not(writer: str) -> None:
    found = ran(writer)
    assert found.kinds() == ["RACE"]
    assert {(x.text[:9], x.other[:9]) for x in found.findings} == {("ld.shared", "st.shared")}


def test_each_lane_arrives_itself() -> None:
    assert ran(STORE + "mbarrier.arrive.shared.b64 %rd2, [%r6]; ", count=32).kinds() == []


@pytest.mark.parametrize(("meet", "kinds"), [(MEET, []), ("", ["RACE"])])
def test_places_that_are_given_back(meet: str, kinds: list[str]) -> None:
    """A lane gives a place back that other lanes may still read."""
    writer = "ld.shared.u32 %r5, [%r4+256]; " + meet + ARRIVE
    assert ran(writer, OVERWRITE).kinds() == kinds


def test_lanes_that_come_apart_and_meet() -> None:
    """The last lanes that come to bar.warp.sync free the others: all have met then."""
    writer = f"@%p1 bra LATE; {STORE} {MEET} bra NEXT; LATE: {STORE} {MEET} NEXT: {ARRIVE}"
    assert ran(writer).kinds() == []
