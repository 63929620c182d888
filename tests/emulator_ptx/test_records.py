"""Records of accesses: made by each access, shared by words, used again when no word has them."""

from __future__ import annotations

import pytest
from running import Ran, kernel, run

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order import record_sizes as o

SHARED = ".shared .align 128 .b8 sh[4096];"
START = """mov.u32 %r1, %tid.x; mov.u32 %r2, sh; and.b32 %r3, %r1, 31; shr.u32 %r4, %r1, 5;
mad.lo.u32 %r5, %r3, 4, %r2; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1;
"""


def ran(body: str) -> Ran:
    return run(kernel(START + body + " ret;", head=SHARED), {}, block=(64, 1, 1), exact=False)


TURNS = 24000


@pytest.mark.parametrize("raced", [False, True])
def test_what_words_have_outlives_the_others(raced: bool) -> None:
    """Warp 0 stores once; warp 1 makes more records than there is room for; then it reads."""
    capacity, few = o.record_room(4096 // 4 + 1024)
    assert max(2 * few, capacity) < TURNS
    found = ran(
        f"""@%p1 st.shared.u32 [%r5], %r1; {"" if raced else "bar.sync 1, 64;"}
        @%p1 bra OUT; mov.u32 %r6, 0;
        L: st.shared.u32 [%r5+512], %r6; st.shared.u16 [%r5+2048], 1; ld.shared.u32 %r7, [%r5+512];
        fence.proxy.async; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, {TURNS}; @%p3 bra L;
        ld.shared.u32 %r8, [%r5];
        OUT: mov.u32 %r9, 0;"""
    )
    assert found.ended and found.executed > 4 * TURNS
    races = [(one.text.strip(), one.count) for one in found.findings]
    assert [count for _, count in races] == ([32] if raced else [])
    if raced:
        assert races[0][0].startswith("ld.shared.u32 %r8")


@pytest.mark.parametrize(
    ("store", "words"),
    [("st.shared.u32 [%r5], %r1;", 32), ("st.shared.u8 [%r5+3], %r4;", 32),
     ("st.shared.v2.u32 [%r10], {%r1, %r1};", 64), ("st.shared.u16 [%r11], %h1;", 16),
     ("st.shared.v4.u32 [%r12], {%r1, %r1, %r1, %r1};", 128)],
)  # fmt: skip
def test_each_word_of_a_race_counts(store: str, words: int) -> None:
    """Two warps store other values to the same words; lanes lie side by side, or apart."""
    found = ran(
        f"""mad.lo.u32 %r10, %r3, 8, %r2; mad.lo.u32 %r11, %r3, 2, %r2; cvt.u16.u32 %h1, %r4;
        mad.lo.u32 %r12, %r3, 16, %r2; {store}"""
    )
    assert [(one.kind, one.count, one.c) for one in found.findings] == [("RACE", words, y.ERROR)]


def test_reading_again_makes_no_record() -> None:
    found = ran(
        f"""st.shared.u32 [%r5+512], %r1; bar.sync 0; mov.u32 %r6, 0;
        L: ld.shared.u32 %r7, [%r5+512]; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, {TURNS};
        @%p3 bra L;"""
    )
    assert found.ended
    table = found.states[0].arrays[y.C_RECORDS]
    assert table[o.K_MARK] == 0 and table[o.K_USED] < 16
