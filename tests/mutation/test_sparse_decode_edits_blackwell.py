"""Edits of the sparse decode kernel's PTX for sm_100a, by hand: each is found, by the sanitizer or
by the oracles. Among them are the mistakes that kernels of its kind have had: of lists, positions,
second caches, parts, exponents of pages, and of barriers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from sparse_calls import artifact as unassembled

from mlagen.artifact import Artifact
from mlagen.verify import verify

FINDING, WRONG = "finding", "wrong"
CALL: dict[str, Any] = {
    "batch": 2, "topk": 230, "lengths": (131, 17), "page_size": 8, "layers": 2, "cache_rows": 1024,
}  # fmt: skip
EXTRA: dict[str, Any] = {"extra_topk": 150, "extra_lengths": (70, 5)}
# Every match is edited: the numbers of tiles have code of their own.
LISTS = {
    "the second list from its middle on": (
        r"selp\.b32 %at, %main_0, 0, %extra;", "mov.u32 %at, 0;", WRONG
    ),
    "the second list as long as the first": (
        r"selp\.b32 %end, %extra_keys_0, %keys_0, %extra;", "mov.b32 %end, %keys_0;", WRONG
    ),
    "the first list twice": (
        r"selp\.b64 %list, %extra_table_0, %table_0, %extra;", "mov.b64 %list, %table_0;", WRONG
    ),
    "rows of the first cache": (r"selp\.b64 %base, %second, %base, %extra;", "", WRONG),
    "a second cache that begins a tile late": (
        r"setp\.ge\.u32 %extra, (%\w+), %main_0;", r"setp.gt.u32 %extra, \1, %main_0;", WRONG
    ),
    "the cache of the next tile": (r"sub\.u32 %t, %ahead_0, 1;", "mov.u32 %t, %ahead_0;", WRONG),
    "positions of the second cache": (r"and\.pred %there, %there, %first;", "", WRONG),
    "what the first token sees": (r"add\.s32 %last_0, %last_0, %t;", "", WRONG),
    "causal by places of a list": (
        r"setp\.le\.and\.s32 %hidden, %where_0, %last_0, %hidden;",
        "setp.le.and.s32 %hidden, %lane, %last_0, %hidden;", WRONG,
    ),
    "a token that does not see itself": (
        r"setp\.le\.and\.s32 (%hidden, %where_0)", r"setp.lt.and.s32 \1", WRONG
    ),
    "a list of another token": (r"mov\.u32 %list, %query;", "mov.u32 %list, %of;", WRONG),
    "lengths of another sequence": (
        r"div\.u32 %of, %query, 2;", "mov.u32 %of, %query;", FINDING
    ),
    "one place past a list": (r"setp\.lt\.u32 (%there, %one, %end;)", r"setp.le.u32 \1", WRONG),
}  # fmt: skip
PARTS = {
    "parts that begin at the first key": (
        r"mul\.lo\.u32 %first, %t, %split_0;", "mov.u32 %first, 0;", WRONG
    ),
    "parts that go on to the end": (r"min\.u32 %end, %end, %t;", "", WRONG),
    "parts that are looked up from the first tile on": (
        r"mov\.u32 %ahead_0, %first;", "mov.u32 %ahead_0, 0;", WRONG
    ),
    "one place for all parts": (
        r"mad\.lo\.u32 %at, %unit_0, %splits, %split_0;", "mul.lo.u32 %at, %unit_0, %splits;",
        FINDING,
    ),
    "a part's O that is a sum": (
        r"rcp\.approx\.ftz\.f32 %inv, %l_0;", "mov.f32 %inv, 0f3F800000;", WRONG
    ),
    "a part's LSE in natural units": (
        r"(ld\.param\.u64 %out, \[partial_lse\];)", r"mul.rn.f32 %log, %log, 0f3F317218;\n\1", WRONG
    ),
    "a part without keys that tells nothing": (
        r"(ld\.param\.u64 %out, \[partial_lse\];)",
        r"not.pred %part, %nothing;\nand.pred %writer, %writer, %part;\n\1", WRONG,
    ),
    "O of a part beside its place": (
        r"mul\.wide\.u32 %offset, %t, 512;", "mul.wide.u32 %offset, %t, 256;", FINDING
    ),
    "no wait for queries": (r"mbarrier\.arrive\.expect_tx.*;", "", FINDING),
}  # fmt: skip
WHOLE = {
    "an LSE of tokens, then heads": (
        r"mad\.lo\.u32 %at, %at, 8, %head;", "mad.lo.u32 %at, %at, 8, %token;", WRONG
    ),
    "an LSE of the first token": (
        r"mad\.lo\.u32 %at, %at, 2, %token;", "mul.lo.u32 %at, %at, 2;", WRONG
    ),
    "a part where there is one": (
        r"setp\.gt\.u32 %part, %splits, 1;", "setp.ge.u32 %part, %splits, 1;", WRONG
    ),
    "rows of O that no head has": (r"@%there st\.global", "st.global", FINDING),
    "slots credited to other barriers": (
        r"add\.u32 %at, %at, KEYS_EMPTY;(?=\s+tcgen05)", "add.u32 %at, %at, WEIGHTS_EMPTY;", FINDING
    ),
    "no sink": (r"add\.rn\.f32 %sink, %sink, %l_0;", "mov.f32 %sink, %l_0;", WRONG),
}  # fmt: skip
RESCALED = {
    "warps that part before they load O": (
        r"vote\.sync\.all\.pred %stays, %stays, -1;",
        "",
        FINDING,
    ),
    "O keeps its scale": (r"mul\.rn\.f32x2 %two, %two, %factors;", "", WRONG),
}
SHARED = {"a list of each token": (r"mov\.u32 %list, %of;", "mov.u32 %list, %query;", FINDING)}
# Exponents in the row, two of 64 columns.
V41 = {
    "exponents of an area's first columns": (
        r"mad\.lo\.u32 %own, %own, 0x11, 0x20;", "mov.u32 %own, 0x20;", WRONG
    ),
    "exponents of its last columns": (
        r"mad\.lo\.u32 %own, %own, 0x11, 0x20;", "mov.u32 %own, 0x31;", WRONG
    ),
    "exponents in another order": (
        r"mad\.lo\.u32 %own, %own, 0x11, 0x20;", "mad.lo.u32 %own, %own, 0x22, 0x10;", WRONG
    ),
    "two areas with the exponents of the first": (
        r"and\.b32 %t, %two, 0xFFFF0000;", "shl.b32 %t, %two, 16;", WRONG
    ),
    "exponents that are not loaded": (
        r"@%there ld\.global\.nc\.v4\.b32 \{%by0, .*;", "", WRONG
    ),
}  # fmt: skip
V41_PAIR = {
    "exponents of the first block's columns": (
        r"mad\.wide\.u32 %src, %rank, 4, %src;", "", WRONG
    ),
    "exponents of the first 256 columns": (r"(%by\d, \[%src \+) 520", r"\1 512", WRONG),
}  # fmt: skip
# Of a CTA pair, whose V has the rope in the second block.
MODEL1 = {
    "exponents of the first block's columns": (
        r"mad\.lo\.u32 %from, %rank, 16, (\d+);", r"mov.u32 %from, \1;", WRONG
    ),
    "exponents beside each row": (r"mul\.lo\.u32 %size, %size, %number;", "", WRONG),
    "exponents of the page's first row": (
        r"mad\.lo\.u32 %size, %inside, 8, %size;", "", WRONG
    ),
    "exponents of a page of the other cache": (
        r"selp\.b32 %size, %second, %size, %extra;", "add.u32 %size, %size, 8;", WRONG
    ),
    "a rope of e4m3": (r"@%second bra ROPE;", "", WRONG),
    "a rope in the first block": (r"@%second bra ROPE;", "@!%second bra ROPE;", WRONG),
    "a rope that is not loaded": (r"@%own ld\.global.*;", "", WRONG),
    "parts of a block's own": (
        r"mov\.u32 %query, %clusterid\.x;", "mov.u32 %query, %ctaid.x;", FINDING
    ),
    "the leader's heads in both blocks": (r"mad\.lo\.u32 %unit_0, %query, 2, %unit_0;",
                                          "mul.lo.u32 %unit_0, %query, 2;", WRONG),
    "the same keys in both blocks": (r"mad\.lo\.u32 %line, %rank, 32, %line;", "", WRONG),
    "values of other columns": (
        r"mad\.wide\.u32 %at, %rank, 128, %at;", "mad.wide.u32 %at, %rank, 64, %at;", WRONG
    ),
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "keys over those that are still read": (
        r"(%feeder_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "arrivals in the own block": (
        r"(mapa\.shared::cluster\.u32 \S+, \S+), 0;", r"\1, %rank;", FINDING
    ),
    "no fence after a wait": (r"tcgen05\.fence::after.*;", "", FINDING),
    "a block that ends before the other": (
        r"barrier\.cluster\.arrive\.release;\n(?=EXIT)", "", FINDING
    ),
}  # fmt: skip
# Of products of e4m3, whose M has a bias, over rows with a scale each of two caches.
FP8 = {
    "the bias left in a part's LSE": (
        r"(ld\.param\.u64 %out, \[partial_lse\];)", r"add.rn.f32 %log, %log, 0f40C00000;\n\1", WRONG
    ),
    "scales of the first cache": (
        r"selp\.b64 %scales, %second, %scales, %extra;", "", WRONG
    ),
    "scales of rows that are none": (r"@%there (ld\.global\.nc\.f32 %weight)", r"\1", WRONG),
    "M that scales do not lift": (
        r"cvt\.rn\.f32\.s32 (%power\S*), %t;", r"mov.b32 \1, 0;", WRONG
    ),
    "commits of another group": (
        r"tcgen05\.commit\.cta_group::2", "tcgen05.commit.cta_group::1", FINDING
    ),
}  # fmt: skip
OF_E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3_row", "compute": "fp8"}
FIELDS = {"num_heads": 8, "q_len": 2}
LISTED = {**FIELDS, "extra": True, "causal": True}
PAIR = {"num_heads": 72, "q_len": 2, "extra": True}
# Fields of each kernel, its call, the kind of data, and its edits.
KERNELS: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, tuple[str, str, str]]]] = {
    "lists": (LISTED, EXTRA, "randn", LISTS),
    "parts": (FIELDS, {"splits": 4}, "late_max", PARTS),
    "whole": (FIELDS, {}, "randn", WHOLE),
    "rescaled": (FIELDS, {}, "peaked", RESCALED),
    "shared lists": ({**FIELDS, "shared_list": True}, {}, "randn", SHARED),
    "pair, model1": (
        {**PAIR, "rows": "model1", "d_qk": 512}, {**EXTRA, "splits": 2}, "randn", MODEL1
    ),
    "v41": ({**FIELDS, "rows": "v41", "d_qk": 512}, {}, "randn", V41),
    "pair, v41": ({**PAIR, "rows": "v41", "d_qk": 512}, {**EXTRA, "splits": 2}, "randn", V41_PAIR),
    "pair, products of e4m3": ({**PAIR, **OF_E4M3}, {**EXTRA, "splits": 2}, "randn", FP8),
}  # fmt: skip


@cache
def kernel(name: str) -> Artifact:
    found: Artifact = unassembled("mla_sparse_decode_sm100", KERNELS[name][0])
    return found


def empty_of(text: str, pipeline: str) -> str:
    """Where the barriers of a pipeline's slots that are free lie, behind those that are full."""
    ((full, slots),) = re.findall(rf"0x(\w+)  pipeline {pipeline}: (\d) full barrier", text)
    return str(int(full, 16) + 8 * int(slots))


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_themselves_are_right(name):
    _, shape, data, _ = KERNELS[name]
    assert verify(kernel(name), data=data, **CALL, **shape).passed


@pytest.mark.parametrize(
    ("name", "old", "new", "seen"),
    [
        pytest.param(name, *edit, id=f"{name}: {what}")
        for name, (*_, edits) in KERNELS.items() for what, edit in edits.items()
    ],
)  # fmt: skip
def test_an_edit_is_found(name, old, new, seen):
    artifact, (_, shape, data, _) = kernel(name), KERNELS[name]
    for word in ("keys", "weights"):
        place = empty_of(artifact.text, word)
        old, new = (x.replace(f"{word.upper()}_EMPTY", place) for x in (old, new))
    text, count = re.subn(old, new, artifact.text)
    assert count
    report = verify(
        replace(artifact, text=text), modes=("latest",), data=data, **CALL, **shape
    )  # fmt: skip
    assert not report.clean if seen == FINDING else not report.right, report.facts()
