"""Edits of the sparse kernel's PTX for sm_100a, by hand: each is found, by the sanitizer or by the
oracles. Among them are the mistakes that kernels of its kind have had."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from mlagen.artifact import Artifact
from mlagen.attention.latent.sm_100a.products import products
from mlagen.codegen import build
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import verify

PV = products("fp8", pair=False)[1]
UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
CALL = {
    "rows": 2, "lengths": (131, 17), "page_size": 8, "layers": 2, "cache_rows": 1024, "topk": 230,
}  # fmt: skip
FINDING, WRONG = "finding", "wrong"
# Every match is edited: the numbers of tiles have code of their own.
EDITS = {
    "no wait for the warpgroup": (r"bar\.sync 1, 128;", "", FINDING),
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "one place past a list": (r"setp\.lt\.u32 (%there, %one, %end;)", r"setp.le.u32 \1", WRONG),
    "the row after the last": (
        r"setp\.lt\.u32 (%there, %place\d, %number;)", r"setp.le.u32 \1", FINDING
    ),
    "a key after the last row": (
        r"setp\.lt\.u32 (%hidden, %listed_key_0, %bound;)", r"setp.le.u32 \1", WRONG
    ),
    "no room between pages": (r"add\.u64 (%src\d?), %src\d?, %page;", "", WRONG),
    "O keeps its scale": (r"mul\.rn\.f32x2 %two, %two, %factors;", "", WRONG),
    "the row sum keeps its scale": (
        r"fma\.rn\.f32 %l_0, %l_0, %alpha_0, %sum0;", "add.rn.f32 %l_0, %l_0, %sum0;", WRONG
    ),
    "M that moves and leaves P": (r"mov\.f32 %cm_0, %ceiling;", "", WRONG),
    "a factor of no power of two": (r"cvt\.rpi\.f32\.f32 %ceiling", "mov.f32 %ceiling", WRONG),
    "rows that nobody waits for": (r"cp\.async\.mbarrier\.arrive.*;", "", FINDING),
    "products that nobody waits for": (r"tcgen05\.commit.*;", "", FINDING),
    "loads that are on their way": (r"tcgen05\.wait::ld.*;", "", FINDING),
    "stores that are on their way": (r"tcgen05\.wait::st.*;", "", FINDING),
    "no fence after a wait": (r"tcgen05\.fence::after.*;", "", FINDING),
    "no fence before an arrival": (r"tcgen05\.fence::before.*;", "", FINDING),
    "no fence for matrix instructions": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "another stride of P's halves": (r"shl\.b32 %t, %t, 2;", "shl.b32 %t, %t, 3;", FINDING),
    "P without its swizzle": (r"xor\.b32 %row, %row, %t;", "mov.b32 %row, %t;", WRONG),
    "queries counted as rows": (r"mul\.lo\.u32 %y, %unit_0, 8;", "mov.u32 %y, %unit_0;", WRONG),
    "lanes of another warp": (r"shl\.b32 %from, %from, 21;", "shl.b32 %from, %from, 20;", FINDING),
    "scores over those that nobody has loaded": (
        r"WAIT: mbarrier\.try_wait.*\[%at \+ SCORES_EMPTY\].*;\n\s*@!%ready bra WAIT;", "", FINDING
    ),
    "queries that are not copied": (r"tcgen05\.cp.*;", "", FINDING),
    "other queries in the upper lanes": (r"warpx2::02_13", "warpx2::01_23", WRONG),
    "columns of Q beside those of K": (r"\[%tmem \+ 288\], %db", "[%tmem + 296], %db", WRONG),
    "TMEM that is kept": (r"tcgen05\.dealloc.*;", "", FINDING),
    "a phase that stays": (r"xor\.b32 %turned, (%\w+), 1;", r"mov.b32 %turned, \1;", FINDING),
    "one place for two tiles' maxima": (r"xor\.b32 %turn_0, %turn_0, 1;", "", FINDING),
    "sums of nothing": (r"setp\.ne\.u32 %add, 0, 0;", "setp.ne.u32 %add, 1, 0;", FINDING),
    "rows of O that no head has": (r"@%there st\.global", "st.global", FINDING),
    "sinks that no head has": (r"@%there ld\.global\.nc\.f32 %sink", "ld.global.nc.f32 %sink",
                               FINDING),
}  # fmt: skip
# Of a CTA pair.
PAIR = {
    "queries of the leader alone": (
        r"tcgen05\.cp\.cta_group::2", "tcgen05.cp.cta_group::1", FINDING
    ),
    "a commit for the leader alone": (r"mov\.b16 %both, 3;", "mov.b16 %both, 1;", FINDING),
    "a commit for the other block alone": (r"mov\.b16 %both, 3;", "mov.b16 %both, 2;", FINDING),
    "arrivals in the own block": (
        r"(mapa\.shared::cluster\.u32 \S+, \S+), 0;", r"\1, %rank;", FINDING
    ),
    "no fence for matrix instructions": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "the same keys in both blocks": (
        r"selp\.b64 %from, (%src\d), (%src\d), %second;", r"mov.b64 %from, \2;", WRONG
    ),
    "values of other columns": (
        r"mul\.wide\.u32 %half, %rank, 256;", "mul.wide.u32 %half, %rank, 128;", WRONG
    ),
    "bytes of one block": (
        r"(expect_tx\.shared::cta\.b64 _, \[%bar\]), 147456;", r"\1, 73728;", FINDING
    ),
    "commits of another group": (
        r"tcgen05\.commit\.cta_group::2", "tcgen05.commit.cta_group::1", FINDING
    ),
    "a block that ends before the other": (
        r"barrier\.cluster\.arrive\.release;\n(?=EXIT)", "", FINDING
    ),
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "no fence after a wait": (r"tcgen05\.fence::after.*;", "", FINDING),
    "no fence before an arrival": (r"tcgen05\.fence::before.*;", "", FINDING),
    "rows that nobody hands on": (
        r"@%first mbarrier\.arrive\.shared::cluster.*;", "", FINDING
    ),
    "rows that nobody waits for": (r"cp\.async\.mbarrier\.arrive\.noinc.*;", "", FINDING),
    "arrivals that tell nothing": (
        r"mbarrier\.arrive\.shared::cluster",
        "mbarrier.arrive.relaxed.cluster.shared::cluster", FINDING,
    ),
    "waits that learn nothing": (
        r"try_wait\.parity\.shared::cta", "try_wait.parity.relaxed.cluster.shared::cta", FINDING
    ),
    "barriers that may not be there": (r"barrier\.cluster\.wait\.acquire;", "", FINDING),
    "heads of another block": (r"shl\.b32 %t, %t, 6;", "shl.b32 %t, %t, 5;", WRONG),
    "products of the second block": (
        r"setp\.ne\.u32 %done, %rank, 0;", "setp.ne.u32 %done, %rank, 1;", FINDING
    ),
}  # fmt: skip
# Of products of e4m3, where M has the bias of P in it.
SIX = "0f40C00000"
E4M3 = {
    "P without its bias": (rf"sub\.rn\.f32 %ceiling, %ceiling, {SIX};", "", WRONG),
    "P with more bias than fits": (
        rf"(sub\.rn\.f32 %ceiling, %ceiling), {SIX};", r"\1, 0f41000000;", WRONG
    ),
    "M that moves too late": (
        r"add\.rn\.f32 %x, %cm_0, 0f41000000;", "add.rn.f32 %x, %cm_0, 0f41200000;", WRONG
    ),
    "the bias left in the LSE": (
        r"add\.rn\.f32 %log, %cm_0, %log;",
        rf"add.rn.f32 %log, %cm_0, %log;\nadd.rn.f32 %log, %log, {SIX};", WRONG,
    ),
    "a sink without the bias": (
        r"sub\.rn\.f32 %sink, %sink, %cm_0;",
        rf"sub.rn.f32 %sink, %sink, %cm_0;\nsub.rn.f32 %sink, %sink, {SIX};", WRONG,
    ),
    "values without their scale": (r"mul\.rn\.f32 %inv, %inv, %other;", "", WRONG),
    "keys of P in another order": (
        r"mov\.b32 (%p\d), \{%low, %high\};", r"mov.b32 \1, {%high, %low};", WRONG
    ),
    "another stride of P's halves": (r"shl\.b32 %t, %t, 1;", "shl.b32 %t, %t, 2;", FINDING),
    "a row without its last columns": (r"@%narrow cp\.async.*;", "", FINDING),
    "values read along their rows": (
        rf"%db, {PV.word}, %add", f"%db, {PV.word & ~(1 << 16)}, %add", WRONG
    ),
    "products of bf16": (r"kind::f8f6f4", "kind::f16", FINDING),
}  # fmt: skip
# And where rows have scales.
SCALED = {
    "M that scales do not lift": (
        r"cvt\.rn\.f32\.s32 (%power\S*), %t;", r"mov.b32 \1, 0;", WRONG
    ),
    "powers of another warp's keys": (
        r"(sub\.u32 %at, %warp), \d+;(?=\s+mad\.lo\.u32 %at, %at, 128)", r"\1, 1;", FINDING
    ),
    "a maximum of half of the keys": (r"max\.f32 %best_0, %best_0, %most;", "", WRONG),
    "scores without scales": (r"mul\.rn\.f32x2 %two, %two, %factors;", "", WRONG),
    "scales of rows that are none": (
        r"@%there (ld\.global\.nc\.f32 %weight)", r"\1", WRONG
    ),
}  # fmt: skip
# Where threads make bf16 of what is stored: of rows with a scale each and of queries, ..
CONVERTED = {
    "no fence of rows and queries": (
        r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.warp\.sync \S+\s+setp\S+ %first, %lane, 0;"
        r"\s+add\.u32 %bar)", "", FINDING,
    ),
    "rows over those that are still read": (
        r"(%feeder_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "a stale scale": (
        r"mov\.f32 %weight_0, 0f00000000;", "setp.lt.and.u32 %there, %ahead_0, 2, %there;", WRONG
    ),
    "the scale of one row for all": (
        r"selp\.b32 (%row), %listed_key_0, 0, %there;", r"mov.b32 \1, 0;", WRONG
    ),
    "scales of another warp's keys": (
        r"mad\.lo\.u32 %at, %at, 128, %smem;", "mov.u32 %at, %smem;", FINDING
    ),
    "rows of the tile before": (r"ld\.global\.nc\.u32 %place0", "ld.global.nc.u32 %t", WRONG),
    "the row after the last": (
        r"setp\.lt\.u32 (%there, %place\d, %number;)", r"setp.le.u32 \1", FINDING
    ),
    "numbers without their exponent": (r"mov\.b32 %power, 0x7B807B80;",
                                       "mov.b32 %power, 0x3F803F80;", WRONG),
    "rows without their swizzle": (r"xor\.b32 %t, %t, %u;", "", WRONG),
    "rows that nobody waits for": (
        r"@%first (mbarrier\.arrive\.shared::cta\.b64 _, \[%bar\];)", "", FINDING
    ),
    "registers that nobody gives": (
        r"setmaxnreg\.dec\.sync\.aligned\.u32 112;", "setmaxnreg.dec.sync.aligned.u32 120;", FINDING
    ),
    "queries of nobody": (
        r"setp\.lt\.u32 (%there, %line, %rows;)", r"setp.le.u32 \1", FINDING
    ),
}  # fmt: skip
# .. of rows with one scale for all, ..
ONE_SCALE = {
    "O in multiples of the scale": (r"mul\.rn\.f32 %inv, %inv, %other;", "", WRONG),
}
# .. and of a CTA pair's rows with scales of columns.
CONVERTED_BY_A_PAIR = {
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "the same keys in both blocks": (r"mad\.lo\.u32 %line, %rank, 32, %line;", "", WRONG),
    "values of other columns": (
        r"mad\.wide\.u32 %at, %rank, 128, %at;", "mad.wide.u32 %at, %rank, 64, %at;", WRONG
    ),
    "the scales of the first block's columns": (
        r"mad\.wide\.u32 %src, %rank, 4, %src;", "", WRONG
    ),
    "scales of the columns before": (r"\[%src \+ 516\]", "[%src + 512]", WRONG),
    "no fence": (
        r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.warp\.sync \S+\s+setp\S+ %first, %lane, 0;"
        r"\s+add\.u32 %bar)", "", FINDING,
    ),
    "keys over those that are still read": (
        r"(%feeder_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "values over those that are still read": (
        r"(%filler_0_phase;\s+)@!%ready bra WAIT;", r"\1", FINDING
    ),
    "arrivals in the own block": (
        r"(mapa\.shared::cluster\.u32 \S+, \S+), 0;", r"\1, %rank;", FINDING
    ),
    "arrivals that tell nothing": (
        r"mbarrier\.arrive\.shared::cluster",
        "mbarrier.arrive.relaxed.cluster.shared::cluster", FINDING,
    ),
}  # fmt: skip
OF_E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3", "compute": "fp8"}
# Fields of each kernel, the kind of data, and its edits.
KERNELS: dict[str, tuple[dict[str, Any], str, dict[str, tuple[str, str, str]]]] = {
    "8 heads": ({"num_heads": 8}, "late_max", EDITS),
    "72 heads": ({"num_heads": 72}, "late_max", PAIR),
    "8 heads, products of e4m3": ({"num_heads": 8, **OF_E4M3}, "randn", E4M3),
    "72 heads, products of e4m3": ({"num_heads": 72, **OF_E4M3}, "randn", {}),
    "8 heads, of rows with scales": (
        {"num_heads": 8, **OF_E4M3, "rows": "e4m3_row"}, "randn", SCALED
    ),
    "72 heads, of rows with scales": (
        {"num_heads": 72, **OF_E4M3, "rows": "e4m3_row"}, "randn", {}
    ),
    "8 heads of e4m3": (
        {"num_heads": 8, "rows": "e4m3_row", "dtype": "fp8_e4m3"}, "late_max", CONVERTED
    ),
    "8 heads, one scale": ({"num_heads": 8, "rows": "e4m3"}, "late_max", ONE_SCALE),
    "72 heads, v32": ({"num_heads": 72, "rows": "v32"}, "late_max", CONVERTED_BY_A_PAIR),
}  # fmt: skip


def scores_empty(text: str) -> str:
    """Where the barrier of scores that are loaded is, behind that of those that are there."""
    (full,) = re.findall(r"0x(\w+)  pipeline scores: 1 full barrier", text)
    return str(int(full, 16) + 8)


@cache
def kernel(name: str) -> Artifact:
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build("mla_sparse_prefill_sm100", MlaSparsePrefillConfig(**KERNELS[name][0]))


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_themselves_are_right(name):
    for data in {"late_max", KERNELS[name][1]}:
        assert verify(kernel(name), data=data, **CALL).passed


@pytest.mark.parametrize(
    ("name", "old", "new", "seen"),
    [
        pytest.param(name, *edit, id=f"{name}: {what}")
        for name, (_, _, edits) in KERNELS.items() for what, edit in edits.items()
    ],
)  # fmt: skip
def test_an_edit_is_found(name, old, new, seen):
    artifact = kernel(name)
    old = old.replace("SCORES_EMPTY", scores_empty(artifact.text))
    text, count = re.subn(old, new, artifact.text)
    assert count
    report = verify(
        replace(artifact, text=text), modes=("latest",), data=KERNELS[name][1], **CALL
    )  # fmt: skip
    assert not report.clean if seen == FINDING else not report.right, report.facts()
