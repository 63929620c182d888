"""Edits of the sparse kernels' PTX, by hand: each is found, by the sanitizer or by the oracles."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import kind_of, verify

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
POOL = {"page_size": 8, "layers": 2, "cache_rows": 1024, "topk": 230, "data": "late_max"}
CALLS: dict[str, dict[str, Any]] = {
    "mla_sparse_decode_sm90": {"batch": 2, "lengths": (131, 17), **POOL},
    "mla_sparse_prefill_sm90": {"rows": 2, "lengths": (131, 17), **POOL},
}
FINDING, WRONG = "finding", "wrong"
# Every match is edited: the numbers of tiles have code of their own.
EVERYWHERE = {
    "no wait for the warpgroup": (r"bar\.sync 1, 128;", "", FINDING),
    "no wait for products": (r"wgmma\.wait_group\.sync\.aligned 0;", "", FINDING),
    "one place past a list": (
        r"setp\.lt\.u32 (%there, %one, %end;)", r"setp.le.u32 \1", WRONG
    ),
    "the row after the last": (
        r"setp\.lt\.u32 (%there, %place\d, %number;)", r"setp.le.u32 \1", WRONG
    ),
    "no room between pages": (r"add\.u64 (%src\d?), %src\d?, %page;", "", WRONG),
    "O keeps its scale": (r"mul\.rn\.f32 (%o\d+), %o\d+, %(alpha\d|both\S*);", "", WRONG),
    "the row sum keeps its scale": (r"mul\.rn\.f32 (%l\d), %l\d, %alpha\d;", "", WRONG),
}  # fmt: skip
CONVERTED = {
    "no fence after conversion": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "lanes that have not met": (r"bar\.warp\.sync \S+;", "", FINDING),
    "rows that nobody hands over": (r"@%first mbarrier\.arrive.*;", "", FINDING),
}
HELD = {
    "no fence after values": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "operands of products that run": (r"wgmma\.wait_group\.sync\.aligned [12];", "", FINDING),
    "queries in the order of memory": (r"xor\.b32 %at, %t, 1;", "xor.b32 %at, %t, 2;", WRONG),
    "only the first tile": (
        r"(setp\.lt\.and\.u32 %found\d, %next, )%stop0", r"\g<1>0", WRONG
    ),
    "the next tile's rows for this one's": (r"mov\.pred %seen\d, %found\d;", "", WRONG),
    "columns of bf16 as they lie": (
        r"mul\.rn\.bf16x2 (%a\d+), %raw\d+, %one;", r"mov.b32 \1, %raw64;", WRONG
    ),
    "another scale of columns": (r"add\.u32 %t, %t, 3;", "add.u32 %t, %t, 2;", WRONG),
    "columns of other lanes": (
        r"mad\.lo\.u32 %t, %own_row0, 8, %t;", "mad.lo.u32 %t, %own_row0, 4, %t;", WRONG
    ),
}  # fmt: skip
# Rows in multiples of a key's grain, of both schedules.
GRAINED = {
    "a scale that is 1 % too large": (
        r"(mul\.rn\.f32 %ratio, \S+ %by;)", r"\1 mul.rn.f32 %ratio, %ratio, 0f3F8147AE;", WRONG
    ),
    "the first bits of a scale alone": (
        r"fma\.rn\.f16x2 (%y\d), %y\d, %rest, %part;", r"mov.b32 \1, %part;", WRONG
    ),
    "columns of bf16 in multiples of 1": (
        r"mul\.rn\.bf16x2 %(raw|words)\d+, %(raw|words)\d+, %power;", "", WRONG
    ),
    "queries by another power of two": (
        r"sub\.u32 %most, %most, 0x07800000;", "sub.u32 %most, %most, 0x07000000;", WRONG
    ),
}  # fmt: skip
# Exponents in the row, four a word, two of 64 columns.
POWERS = {
    "exponents of an area's first columns": (
        r"mad\.lo\.u32 %u, %u, 0x800, (0x.444);", r"mov.u32 %u, \1;", WRONG
    ),
    "two areas with the exponents of the first": (
        r"(mad\.lo\.u32 %u, %u, 0x800,) 0x2444;", r"\1 0x0444;", WRONG
    ),
    "exponents of half as many": (r"shr\.u32 %t, %t, 1;", "", WRONG),
    "exponents that are not loaded": (
        r"@%\w+ ld\.global\S* (%scale\d|%by\d+), .*;", "", WRONG
    ),
}  # fmt: skip
OF_ANOTHER_LANE = {
    "the exponents of another lane": (
        r"add\.u32 %t, %t, 3;(\s+shfl\.sync\.idx\.b32 %by)", r"add.u32 %t, %t, 2;\1", WRONG
    ),
}  # fmt: skip
# Of a CTA cluster, whose threads have numbers of both halves of 64 columns.
OF_BOTH_HALVES = {
    "exponents of an area's first columns": (
        r"(prmt\.b32 %t, %by\d+, 0,) 0x1444;", r"\1 0x0444;", WRONG
    ),
    "exponents of the area before": (
        r"(prmt\.b32 %t, %by\d+, 0,) 0x3444;", r"\1 0x1444;", WRONG
    ),
    "exponents of the first 128 columns": (
        r"(@%there ld\.global\.b32 %by\d+, \[%src \+) 524", r"\1 512", WRONG
    ),
}  # fmt: skip
FETCHED = {"rows that nobody waits for": (r"cp\.async\.mbarrier\.arrive.*;", "", FINDING)}


KERNELS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "prefill": ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(8), {}),
    "decode": ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32"), {}),
    "decode, keys in SMEM": (
        "mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32"), {"variant": "swap_ab"}
    ),
    "decode, grains": ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(20, rows="v32"), {}),
    "decode, fed grains": ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(40, rows="v32"), {}),
    "decode, powers": (
        "mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, d_qk=512, rows="v41"), {}
    ),
    "decode, powers in SMEM": (
        "mla_sparse_decode_sm90", MlaSparseDecodeConfig(20, d_qk=512, rows="v41"), {}
    ),
    "decode, fed powers": (
        "mla_sparse_decode_sm90", MlaSparseDecodeConfig(40, d_qk=512, rows="v41"), {}
    ),
    "decode, powers for two": (
        "mla_sparse_decode_sm90", MlaSparseDecodeConfig(72, d_qk=512, rows="v41"), {}
    ),
}  # fmt: skip


@cache
def kernel(which: str) -> Artifact:
    name, problem, knobs = KERNELS[which]
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(name, problem, knobs=knobs)


EDITS = [
    pytest.param(name, *edit, id=f"{name}: {what}")
    for name, own in (
        ("decode", HELD), ("decode, keys in SMEM", CONVERTED), ("prefill", FETCHED),
    )
    for what, edit in {**EVERYWHERE, **own}.items()
]  # fmt: skip
EDITS += [
    pytest.param(name, *edit, id=f"{name}: {what}")
    for name in ("decode, grains", "decode, fed grains") for what, edit in GRAINED.items()
]  # fmt: skip
EDITS += [
    pytest.param(name, *edit, id=f"{name}: {what}")
    for name, own in (
        ("decode, powers", {**POWERS, **OF_ANOTHER_LANE}),
        ("decode, powers in SMEM", {**POWERS, **OF_ANOTHER_LANE}),
        ("decode, fed powers", POWERS), ("decode, powers for two", OF_BOTH_HALVES),
    )
    for what, edit in own.items()
]  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_themselves_are_right(name):
    assert verify(kernel(name), **CALLS[KERNELS[name][0]]).passed


@pytest.mark.parametrize(("name", "old", "new", "seen"), EDITS)
def test_an_edit_is_found(name, old, new, seen):
    artifact = kernel(name)
    text, count = re.subn(old, new, artifact.text)
    assert count
    report = verify(replace(artifact, text=text), modes=("latest",), **CALLS[KERNELS[name][0]])
    assert not report.clean if seen == FINDING else not report.right, report.facts()


# Of what puts parts together: sinks, LSE, the count that tells blocks that all parts are there.
PUT_TOGETHER = {
    "no sink": (r"mul\.rn\.f32 %other, %other, %left_of;", "", WRONG),
    "a sink that counts in the other base": (
        r"mul\.rn\.f32 %sink, %sink, 0f3FB8AA3B;", "", WRONG
    ),
    "the LSE of another head": (
        r"mad\.lo\.u32 %head, %token, 8, %its_row;", "mul.lo.u32 %head, %token, 8;", WRONG
    ),
    "a part that is not counted": (
        r"add\.u64 %old, \[%state\], 1;", "add.u64 %old, [%state], 0;", WRONG
    ),
    "whole lists that are cut": (r"setp\.eq\.u32 %cut, %t, 0;", "setp.ne.u32 %cut, %t, 0;", WRONG),
}  # fmt: skip


@pytest.mark.parametrize("what", PUT_TOGETHER)
def test_an_edit_of_parts_is_found(what: str) -> None:
    old, new, seen = PUT_TOGETHER[what]
    artifact = kernel("decode")
    text, count = re.subn(old, new, artifact.text)
    assert count
    shape = {"batch": 2, "topk": 230, "lengths": (230, 5), "splits": 2, "together": 2,
             "data": "diffuse"}  # fmt: skip
    report = verify(replace(artifact, text=text), modes=("latest",), **shape)
    assert not report.clean if seen == FINDING else not report.right, report.facts()


@pytest.mark.parametrize("place", [0, 2, 3, 4])
def test_a_page_s_distance_counts_wherever_rows_are_found(place: int) -> None:
    """The calls of `mlagen verify` tell an address that is wrong in one place, also where the
    first rows of a block's next query are found."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        artifact = build("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(64))
    lines = artifact.text.splitlines(keepends=True)
    at = [n for n, line in enumerate(lines) if "add.u64 %src2, %src2, %page;" in line][place]
    lines[at] = lines[at].replace("add", "sub")
    edited = replace(artifact, text="".join(lines))
    assert not all(
        verify(edited, modes=("latest",), data=call.data, **call.shape).right
        for call in kind_of(artifact).covering(artifact).calls
    )
