"""Edits of the PTX of MLA decode for sm_100a, by hand: each is found, by the sanitizer or by the
oracles. Among them are the mistakes that kernels of its kind have had."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from sparse_calls import artifact as unassembled

from mlagen.artifact import Artifact
from mlagen.attention.latent.sm_100a.products import products
from mlagen.codegen import build
from mlagen.families.mla_decode.verification import UNSPLIT
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.verify import verify

PV = products("bf16", pair=False)[1]
FINDING, WRONG = "finding", "wrong"
# Every match is edited: the numbers of tiles have code of their own.
EDITS = {
    "bytes that are told of the other slot": (  # when a tile is skipped, or not
        r"(add\.u32 %bar, %bar, %smem;)", r"xor.b32 %bar, %bar, 8;\n\1", FINDING
    ),
    "an arrival for one thread's stores": (
        r"bar\.warp\.sync \S+;(?=\s+setp\.eq\.u32 %first, %lane, 0;)", "", FINDING
    ),
    "a barrier that another role has": (r"bar\.sync 1, 128;", "bar.sync 1, 160;", FINDING),
    "no wait for the warpgroup": (r"bar\.sync 1, 128;", "", FINDING),
    "one place for two tiles' maxima": (r"xor\.b32 %turn_0, %turn_0, 1;", "", FINDING),
    "bytes that nobody expects": (
        r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%bar\], 73728;",
        "mbarrier.arrive.shared::cta.b64 _, [%bar];", FINDING,
    ),
    "padding that is expected and not fetched": (
        r"(expect_tx\.shared::cta\.b64 _, \[%bar\]), 73728;", r"\1, 81920;", FINDING
    ),
    "bytes that are expected after an arrival": (
        r"(?s)@%first mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%bar\], 73728;(.*?)"
        r"COPIED:",
        r"@%first mbarrier.arrive.shared::cta.b64 _, [%bar];\1COPIED: @%first "
        r"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 73728;", FINDING,
    ),
    "no fence after a wait": (r"tcgen05\.fence::after.*;", "", FINDING),
    "no fence before an arrival": (r"tcgen05\.fence::before.*;", "", FINDING),
    "no fence for matrix instructions": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "loads from TMEM by half of the lanes": (
        r"(tcgen05\.ld\.sync.*;)",
        r"{\n.reg .pred %some;\nsetp.lt.u32 %some, %lane, 16;\n@%some \1\n}", FINDING,
    ),
    "columns of Q counted as tiles": (r"mov\.u32 %x, 64;", "mov.u32 %x, 1;", WRONG),
    "P without its swizzle": (r"xor\.b32 %row, %row, %t;", "mov.b32 %row, %t;", WRONG),
    "values read along their rows": (
        rf"%db, {PV.word}, %add", f"%db, {PV.word & ~(1 << 16)}, %add", WRONG
    ),
    "products that nobody waits for": (r"tcgen05\.commit.*;", "", FINDING),
    "loads that are on their way": (r"tcgen05\.wait::ld.*;", "", FINDING),
    "stores that are on their way": (r"tcgen05\.wait::st.*;", "", FINDING),
    "a phase that stays": (r"xor\.b32 %turned, (%\w+), 1;", r"mov.b32 %turned, \1;", FINDING),
    "TMEM that is kept": (r"tcgen05\.dealloc.*;", "", FINDING),
    "rows of O that no head has": (r"@%there st\.global", "st.global", FINDING),
    "M that moves and leaves P": (r"mov\.f32 %cm_0, %ceiling;", "", WRONG),
    "pages cut at 32 bits": (
        r"mul\.wide\.u32 %bytes, %sequence, %pages;",
        "{\n.reg .b32 %low;\nmul.lo.u32 %low, %sequence, %pages;\nand.b32 %low, %low, 3;\n"
        "cvt.u64.u32 %bytes, %low;\n}", WRONG,
    ),
}  # fmt: skip
PAIR = {
    "the same keys in both blocks": (
        r"setp\.eq\.u32 %some, %t, %rank;", "setp.eq.u32 %some, %t, 0;", WRONG
    ),
    "values of other columns": (
        r"mad\.lo\.u32 %column, %rank, 128,", "mad.lo.u32 %column, %rank, 64,", WRONG
    ),
    "values of the same columns": (
        r"mad\.lo\.u32 %column, %rank, 128,", "mad.lo.u32 %column, %rank, 0,", WRONG
    ),
    "rows of the first block": (r"add\.u32 %query, %query, %t;", "", WRONG),
    "an item for each block": (r"shr\.u32 %t, %t, 1;(?=\s)", "", FINDING),
    "rows of a part in one another's place": (r"mad\.lo\.u32 %at, %rank, 64, %at;", "", FINDING),
    "queries of the leader alone": (
        r"tcgen05\.cp\.cta_group::2", "tcgen05.cp.cta_group::1", FINDING
    ),
    "a commit for the leader alone": (r"mov\.b16 %both, 3;", "mov.b16 %both, 1;", FINDING),
    "a commit for the other block alone": (r"mov\.b16 %both, 3;", "mov.b16 %both, 2;", FINDING),
    "bytes that complete the own block": (
        r"(mapa\.shared::cluster\.u32 %bar, %bar), 0;", r"\1, %rank;", FINDING
    ),
    "arrivals in the own block": (
        r"(mapa\.shared::cluster\.u32 %at, %at), 0;", r"\1, %rank;", FINDING
    ),
    "keys of one block": (
        r"(expect_tx\.shared::cta\.b64 _, \[%bar\]), 73728;", r"\1, 36864;", FINDING
    ),
    "values of one block": (
        r"(expect_tx\.shared::cta\.b64 _, \[%bar\]), 65536;", r"\1, 32768;", FINDING
    ),
    "commits of another group": (
        r"tcgen05\.commit\.cta_group::2", "tcgen05.commit.cta_group::1", FINDING
    ),
    "a block that ends before the other": (
        r"barrier\.cluster\.arrive\.release;\n(?=EXIT)", "", FINDING
    ),
    "barriers that may not be there": (r"barrier\.cluster\.wait\.acquire;", "", FINDING),
    "an arrival for one thread's stores": (
        r"bar\.warp\.sync \S+;(?=\s+setp\.eq\.u32 %first, %lane, 0;)", "", FINDING
    ),
    "no fence after a wait": (r"tcgen05\.fence::after.*;", "", FINDING),
    "no fence before an arrival": (r"tcgen05\.fence::before.*;", "", FINDING),
    "no fence for matrix instructions": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "arrivals that tell nothing": (
        r"mbarrier\.arrive\.shared::cluster",
        "mbarrier.arrive.relaxed.cluster.shared::cluster", FINDING,
    ),
    "products of the second block": (
        r"setp\.ne\.u32 %done, %rank, 0;", "setp.ne.u32 %done, %rank, 1;", FINDING
    ),
    "keys over those that are still read": (
        r"(%feeder_\d_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
}  # fmt: skip
CONVERTED = {
    "the same keys in both blocks": (r"mad\.lo\.u32 %line, %rank, 32, %line;", "", WRONG),
    "values of other columns": (
        r"mad\.wide\.u32 %at, %rank, 128, %at;", "mad.wide.u32 %at, %rank, 64, %at;", WRONG
    ),
    "values of the first rows alone": (r"add\.u32 %line, %line, 32;", "", WRONG),
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "keys over those that are still read": (
        r"(%feeder_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "values over those that are still read": (
        r"(%filler_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "arrivals in the own block": (
        r"(mapa\.shared::cluster\.u32 \S+, \S+), 0;", r"\1, %rank;", FINDING
    ),
    "scales of another warp's keys": (
        r"mad\.lo\.u32 %at, %at, 128, %smem;", "mov.u32 %at, %smem;", FINDING
    ),
    "queries of nobody": (r"setp\.lt\.u32 (%there, %line, %rows;)", r"setp.le.u32 \1", FINDING),
    "rows without a page": (
        r"setp\.lt\.u32 %there, %place0, %t;", "setp.eq.u32 %there, 0, 0;", FINDING
    ),
}  # fmt: skip
E4M3 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}
OF_E4M3 = {
    "P without its bias": (r"sub\.rn\.f32 %ceiling, %ceiling, 0f40C00000;", "", WRONG),
    "values of other columns": (
        r"mad\.lo\.u32 %column, %rank, 128,", "mad.lo.u32 %column, %rank, 64,", WRONG
    ),
    "keys of one block": (
        r"(expect_tx\.shared::cta\.b64 _, \[%bar\]), 40960;", r"\1, 20480;", FINDING
    ),
    "O in multiples of the scale": (r"mul\.rn\.f32 %inv, %inv, %other;", "", WRONG),
}  # fmt: skip
# Of blocks that take several items: what goes on from one to the next.
ITEMS = {
    "parities of an item that begin anew": (
        r"(?s)(mov\.u32 %\w+_item0, 0;[^:]*?)(\w+_ITEM:)", r"\2\n\1", FINDING
    ),
    "slots of math that begin anew": (
        r"(?s)(mov\.u32 %math_\d+_slot, 0;\s+mov\.u32 %math_\d+_phase, 0;)(.*)MATH_ITEM:",
        r"\1\2MATH_ITEM:\n\1", FINDING,
    ),
    "a phase of the item that stays": (r"xor\.b32 %\w+_item[01], .*;", "", FINDING),
    "O before its products are done": (r"(%softmax_item0;\s+)@!%ready bra WAIT;", r"\1", FINDING),
    "products over O that is stored": (
        r"(%math_\d+_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "Q over one that is read": (r"(%feeder_item1;\s+)@!%ready bra WAIT;", r"\1", FINDING),
    "scores with the Q before": (r"(%math_item0;\s+)@!%ready bra WAIT;", r"\1", FINDING),
    "TMEM that goes with the first item": (
        r"(setp\.ne\.u32 %done, %items, 0;\s+@%done bra SOFTMAX_ITEM;)",
        r"{\n.reg .pred %other;\nsetp.ne.u32 %other, %warp, 0;\n@%other bra KEPT;\n"
        r"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 512;\nKEPT:\n}\n\1", FINDING,
    ),
    "P over one that is read": (r"(%softmax_\d+_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING),
    "an item twice": (r"add\.u64 %item_0, %item_0, 48;(?=\s+mov\.b64 %item)", "", FINDING),
    "an item that is left out": (
        r"(sub\.u32 %items, %items, 1;)", r"\1\nsetp.eq.u32 %done, %items, 1;\n"
        r"@%done sub.u32 %items, %items, 1;", WRONG,
    ),
    "one place for two items' sums and maxima": (
        r"xor\.b32 %turn_0, %turn_0, 1;(?=\s+and\.b32 %row, %t, 64;)", "", FINDING
    ),
}  # fmt: skip
ITEMS_OF_PAIRS = {
    "a stale item in the second block": (
        r"(add\.u64 %item_0, %item_0, 48;)",
        r"{\n.reg .pred %lead;\nsetp.eq.u32 %lead, %rank, 0;\n@%lead \1\n}", FINDING,
    ),
    "shares of each block": (r"shr\.u32 %t, %t, 1;(?=\s)", "", FINDING),
    "Q over one that is read": (r"(%feeder_item1;\s+)@!%ready bra WAIT;", r"\1", FINDING),
    "parities of an item that begin anew": ITEMS["parities of an item that begin anew"],
}  # fmt: skip
# Fields of each kernel, and its edits.
KERNELS: dict[str, tuple[dict[str, Any], dict[str, tuple[str, str, str]]]] = {
    "8 heads": ({"num_heads": 8}, EDITS),
    "72 heads": ({"num_heads": 72}, PAIR),
    "72 heads, rope-aware": (
        {"num_heads": 72, "cache_dtype": "fp8_rope_aware", "dtype": "fp8_e4m3"}, CONVERTED
    ),
    "72 heads, products of e4m3": ({"num_heads": 72, **E4M3, "compute": "fp8"}, OF_E4M3),
    "8 heads, items": ({"num_heads": 8}, ITEMS),
    "72 heads, items": ({"num_heads": 72}, ITEMS_OF_PAIRS),
}  # fmt: skip
WHOLE = {"lengths": (33, 500, 70), "data": "late_max"}
CALLS = (WHOLE, {**WHOLE, "split_keys": 128})
# One block, or pair, has them all; the last ones have a tile each.
ITEM_CALLS = ({"lengths": (33, 500, 70, 5), "split_keys": UNSPLIT, "data": "late_max"},)


@cache
def kernel(name: str) -> Artifact:
    knobs = {"persistent": 1} if "items" in name else {}
    found: Artifact = unassembled("mla_decode_sm100", KERNELS[name][0], **knobs)
    return found


def calls(name: str) -> tuple[dict[str, Any], ...]:
    return ITEM_CALLS if "items" in name else CALLS


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_themselves_are_right(name):
    for call in calls(name):
        assert verify(kernel(name), **call).passed


def found(artifact: Artifact, edit: tuple[str, str, str], *given: dict[str, Any]) -> bool:
    """Whether a call sees the edit, by the sanitizer or by the oracles."""
    old, new, seen = edit
    text, count = re.subn(old, new, artifact.text)
    assert count
    reports = (verify(replace(artifact, text=text), modes=("latest",), **call) for call in given)
    return any(not (x.clean if seen == FINDING else x.right) for x in reports)


@pytest.mark.parametrize(
    ("name", "old", "new", "seen"),
    [
        pytest.param(name, *edit, id=f"{name}: {what}")
        for name, (_, edits) in KERNELS.items() for what, edit in edits.items()
    ],
)  # fmt: skip
def test_an_edit_is_found(name, old, new, seen):
    assert found(kernel(name), (old, new, seen), *calls(name))


MERGE = {
    "partials that may not be there": (r"griddepcontrol\.wait;", "", FINDING),
    "a part without keys that is multiplied by 0": (r"@%there fma\.rn", "fma.rn", WRONG),
    "slots of 64 rows": (r"ld\.param\.u32 (\S+), \[slot_rows\];", r"mov.u32 \1, 64;", WRONG),
}


@pytest.mark.parametrize("what", MERGE)
def test_an_edit_of_the_merge_is_found(what):
    artifact = build("mla_decode_merge_sm100", MlaDecodeMergeConfig(72))
    assert found(artifact, MERGE[what], {"partials": (2, 3), "slot_rows": 128})
