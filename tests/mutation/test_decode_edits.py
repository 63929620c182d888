"""Edits of the decode kernel's PTX, by hand, as somebody makes them who wants to know what is seen.

Each is found by the emulator, or changes nothing, for the reason beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from decode_runs import DecodeRuns, decode

from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.mutation.ptx import judging as ptx_judge
from mlagen.mutation.ptx.judging import PtxJudge
from mlagen.mutation.ptx.mutant import PtxMutant, TextEdit
from mlagen.ptx import read_ptx

# Items of 5, 3, 2, 1 and no tiles, some of them in part, whose maximum grows from tile to tile.
CALLS = [((300, 192, 66, 1, 0), "late_max")]
SAME = "the same"
LETTER = "letter"  # told, and hardware is known to order it


def text_of_few_heads() -> str:
    return decode((("variant", "seesaw"),), num_heads=16).text


@dataclass(frozen=True)
class Hand:
    """`new` instead of the `number`th match of `old` after the heading `after`. `seen`: what the
    emulator says, or SAME with the reason why nothing changes."""

    name: str
    old: str
    new: str
    seen: str
    why: str = ""
    after: str = ""
    number: int = 0

    def mutant(self) -> PtxMutant:
        text = text_of_few_heads()
        start = text.index(self.after) if self.after else 0
        found = list(re.finditer(self.old, text[start:]))[self.number]
        at, stop = start + found.start(), start + found.end()
        line = text.count("\n", 0, at) + 1
        instructions = read_ptx(text).entries[0].instructions
        index = next(i.index for i in instructions if i.span[1] > at)
        new = found.expand(self.new)
        edits = (TextEdit(at, stop, new),)
        return PtxMutant("waits", self.name, index, line, found[0], new, edits)


LEFT, LOOP = "// ---- left, prologue", "// ---- left, loop"
DRAIN = "// ---- left, drain"
RIGHT, RIGHT_LOOP = "// ---- right, prologue", "// ---- right, loop"
WAIT = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 (%\w+), \[%at \+ {}\], (\S+);"
EXPECT = r"expect_tx\.shared::cta\.b64 _, \[%bar\]"
TRUE = r"setp.eq.u32 \1, 0, 0;"

EDITS = [
    # Waits
    Hand("no wait for K", WAIT.format(221200), TRUE, "race-raw", after=LOOP),
    Hand("no wait for Q", WAIT.format(221184), TRUE, "race-raw", after=LEFT),
    Hand("no wait for the held Q", WAIT.format(221192), TRUE, "race-raw", after=LEFT),
    Hand(
        "a wait on the other slot",
        WAIT.format(221232),
        r"mbarrier.try_wait.parity.shared::cta.b64 \1, [%at + 221240], \2;",
        "race",
        after=LOOP,
    ),
    Hand(
        "the wait is tried once",
        r"(?<=221200\], %left_turn1;)\s+@!%ready bra WAIT;",
        "\n",
        "race-raw",
        after=LOOP,
    ),
    Hand(
        "rows beside the pattern of their swizzle",
        r"add\.u64 %db, (%\w*row_major\w*), (\d+);",
        r"add.u64 %db, \1, \2; add.u64 %db, %db, 32;",
        "descriptor",
        after=LOOP,
    ),
    Hand(
        "one group less",
        r"wait_group\.sync\.aligned 0;",
        "wait_group.sync.aligned 1;",
        "race-war",
        after=LOOP,
    ),
    Hand(
        "no wait before a copy",
        r"wgmma\.wait_group\.sync\.aligned 1;",
        "",
        "race-war",
        after=RIGHT_LOOP,
    ),
    Hand(
        "a wait twice",
        r"(LEFT_SKIP\d+:\n)\s*wgmma\.wait_group\.sync\.aligned 0;",
        r"\1",
        SAME,
        "the wait before the jump has waited for all groups, and none was issued since",
        after=LOOP,
    ),
    Hand("no commit", r"wgmma\.commit_group\.sync\.aligned;", "", "race", after=LOOP),
    # Arrivals and bytes
    Hand(
        "16 bytes more",
        EXPECT + ", 16384",
        "expect_tx.shared::cta.b64 _, [%bar], 16400",
        "deadlock",
        after=LOOP,
    ),
    Hand(
        "half of the bytes",
        EXPECT + ", 16384",
        "expect_tx.shared::cta.b64 _, [%bar], 8192",
        "",
        after=LOOP,
    ),
    Hand(
        "no expected bytes",
        r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%bar\], 57344;",
        "",
        "",
        after=LEFT,
    ),
    Hand(
        "bytes on the next mbarrier",
        EXPECT + ", 57344;",
        "expect_tx.shared::cta.b64 _, [%bar + 8], 57344;",
        "",
        after=LEFT,
    ),
    Hand("two arrivals wanted", r"\[%smem \+ 221200\], 1;", "[%smem + 221200], 2;", "deadlock"),
    Hand(
        "no init",
        r"mbarrier\.init\.shared::cta\.b64 \[%smem \+ 221216\], 1;",
        "",
        "mbarrier-misuse",
    ),
    # Fences
    Hand(
        "P without a fence",
        r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.arrive 3)",
        "",
        "race-raw",
        after=LOOP,
    ),
    Hand("no fence after the tail", r"fence\.proxy\.async\.shared::cta;", "", "race", after=DRAIN),
    Hand(
        "no wgmma.fence after rescaling",
        r"wgmma\.fence\.sync\.aligned;",
        "",
        "wgmma-misuse",
        after=LOOP,
    ),
    Hand(
        "no wgmma.fence between products",
        r"wgmma\.fence\.sync\.aligned;",
        "",
        SAME,
        "only products touched S since the fence before",
        after=LEFT,
        number=1,
    ),
    Hand(
        "no fences after init",
        r"fence\.mbarrier_init\.release\.cluster;\s+fence\.proxy\.async;",
        "\n",
        LETTER,
    ),
    Hand(
        "one fence after init",
        r"fence\.mbarrier_init\.release\.cluster;",
        "",
        SAME,
        "the proxy fence after it shows the same",
    ),
    # Phases
    Hand(
        "the other parity",
        WAIT.format(221216),
        r"mbarrier.try_wait.parity.shared::cta.b64 \1, [%at + 221216], %left_turn0;",
        "",
        after=LOOP,
    ),
    Hand(
        "a phase that is not advanced", r"xor\.b32 %left_turn1, %left_turn1, 1;", "", "", after=LOOP
    ),
    Hand("a phase that starts late", r"mov\.u32 %right_turn1, \d;", "mov.u32 %right_turn1, 1;", ""),
    # Named barriers
    Hand("another barrier", r"bar\.sync 6, 256;", "bar.sync 9, 256;", "deadlock", after=LOOP),
    Hand(
        "no barrier before a copy",
        r"bar\.sync 1, 128;(?=\s+\{\s+\.reg \.pred %other)",
        "",
        SAME,
        "a group of products is over for its four warps at once: the copying one has waited",
        after=LOOP,
    ),
    Hand(
        "no barrier before O is read",
        r"bar\.sync 1, 128;(?=\s+sub\.u32 %line)",
        "",
        "race",
        after=LOOP,
    ),
    Hand("no arrival of P", r"bar\.arrive 3, 256;", "", "deadlock", after=LOOP),
    Hand(
        "an arrival before P",
        r"(stmatrix\.\S+ \[%at \+ 222208\], [^;]+;)([^}]*\}[^}]*\})"
        r"(\s+fence\.proxy\.async\.shared::cta;)\s+bar\.arrive 3, 256;",
        r"bar.arrive 3, 256; \1\2\3",
        "race",
        after=LOOP,
    ),
    Hand("other threads", r"bar\.arrive 5, 256;", "bar.arrive 5, 224;", "", after=LOOP),
    Hand("no wait for P", r"bar\.sync 4, 256;", "", "race", after=LOOP),
    # Descriptors
    Hand(
        "a tile that begins late",
        r"add\.u64 %db, %row_major0, 4610;",
        "add.u64 %db, %row_major0, 4611;",
        "values",
        after=LOOP,
    ),
    Hand("another swizzle", r"0x4000004000010000", "0x8000004000010000", "descriptor"),
    Hand("half of the stride", r"0x4000004000010000", "0x4000002000010000", "values"),
    Hand(
        "the leading offset",
        r"0x4000004000010000",
        "0x4000004000020000",
        SAME,
        "a K-major tile as wide as its swizzle has no second one: the field is not read",
    ),
    # Coordinates
    Hand("a column", r"mov\.u32 %x, 64;", "mov.u32 %x, 128;", "values", after=LOOP),
    Hand(
        "another page",
        r"mul\.lo\.u32 %y, %page0, 64;",
        "mul.lo.u32 %y, %page1, 64;",
        "values",
        after=LOOP,
    ),
    Hand(
        "rows of a page",
        r"mul\.lo\.u32 %y, %page0, 64;",
        "mul.lo.u32 %y, %page0, 32;",
        "values",
        after=LOOP,
    ),
    Hand(
        "a tile elsewhere",
        r"add\.u32 %dst, %smem, 90112;",
        "add.u32 %dst, %smem, 91136;",
        "",
        after=LOOP,
    ),
    # Swizzles
    Hand(
        "a column of P",
        r"xor\.b32 %at, %fragment0, 32;",
        "xor.b32 %at, %fragment0, 0;",
        "",
        after=LOOP,
    ),
    Hand(
        "a bit of the swizzle", r"and\.b32 %high, %high, 7;", "and.b32 %high, %high, 3;", "values"
    ),
    # Values
    Hand(
        "no exponential",
        r"ex2\.approx\.ftz\.f32 (\S+), (\S+);",
        r"mov.f32 \1, \2;",
        "values",
        after=LOOP,
    ),
    Hand(
        "one key more",
        r"setp\.ge\.s32 %hidden, %t, %valid0;",
        "setp.gt.s32 %hidden, %t, %valid0;",
        "values",
        after=DRAIN,
        number=10,
    ),
    Hand(
        "a minimum", r"max\.f32 %max, %max, %cm0", "min.f32 %max, %max, %cm0", "values", after=LOOP
    ),
]

# Of a part that is stored, which calls of whole sequences do not reach.
OF_PARTS = [
    Hand(
        "a part without a fence",
        r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.sync 1, 128;\s+and)",
        "",
        "race",
    ),
    Hand(
        "no barrier before a part is copied", r"bar\.sync 1, 128;(?=\s+and\.b32 %line)", "", "race"
    ),
    Hand(
        "rows of a part that lie closer",
        r"mad\.lo\.u32 %at, %line, 1056",
        "mad.lo.u32 %at, %line, 1040",
        "",
    ),
    Hand(
        "half of a part's rows",
        r"setp\.ge\.u32 %empty, %line, 64;",
        "setp.ge.u32 %empty, %line, 32;",
        "",
    ),
    Hand("no wait for a part's copies", r"cp\.async\.bulk\.wait_group 0;", "", ""),
]


def judged(**planned: int) -> Iterator[PtxJudge]:
    artifact = decode((("variant", "seesaw"),), num_heads=16)
    runs = DecodeRuns(artifact, MlaDecodeConfig(num_heads=16), CALLS, **planned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptx_judge, "RANDOM_RUNS", 1)
        yield PtxJudge(text_of_few_heads(), runs, None)


@pytest.fixture(scope="module")
def judge() -> Iterator[PtxJudge]:
    yield from judged()


@pytest.fixture(scope="module")
def judge_of_parts() -> Iterator[PtxJudge]:
    yield from judged(split_keys=128)


@pytest.mark.parametrize("hand", EDITS, ids=lambda hand: hand.name)
def test_an_edit_is_found_or_changes_nothing(hand: Hand, judge: PtxJudge) -> None:
    verdict = judge.judge(hand.mutant())
    if hand.seen == SAME:
        assert hand.why and (verdict.outcome, verdict.by) == ("equivalent", "runs"), verdict.why
    elif hand.seen == LETTER:
        assert (verdict.outcome, verdict.by) == ("equivalent", LETTER), verdict
    else:
        assert verdict.outcome == "killed" and verdict.by.startswith(hand.seen), verdict


@pytest.mark.parametrize("hand", OF_PARTS, ids=lambda hand: hand.name)
def test_an_edit_of_a_part_is_found(hand: Hand, judge_of_parts: PtxJudge) -> None:
    verdict = judge_of_parts.judge(hand.mutant())
    assert verdict.outcome == "killed" and verdict.by.startswith(hand.seen), verdict


def test_there_are_enough() -> None:
    found = [hand for hand in EDITS if hand.seen != SAME]
    assert len(found) >= 31 and len({hand.name for hand in EDITS}) == len(EDITS)
