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
from mlagen.targets.sm_90a.ptxas import PtxasResult
from mlagen.verify import verify

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
    "no room between pages": (r"add\.u64 %src, %src, %page;", "", WRONG),
    "O keeps its scale": (r"mul\.rn\.f32 (%o\d+), %o\d+, %alpha\d;", "", WRONG),
    "the row sum keeps its scale": (r"mul\.rn\.f32 (%l\d), %l\d, %alpha\d;", "", WRONG),
}  # fmt: skip
CONVERTED = {
    "no fence after conversion": (r"fence\.proxy\.async\.shared::cta;", "", FINDING),
    "rows that nobody hands over": (r"@%first mbarrier\.arrive.*;", "", FINDING),
}
FETCHED = {"rows that nobody waits for": (r"cp\.async\.mbarrier\.arrive.*;", "", FINDING)}


@cache
def kernel(name: str) -> Artifact:
    problem: Any = MlaSparsePrefillConfig(8)
    if name == "mla_sparse_decode_sm90":
        problem = MlaSparseDecodeConfig(8, rows="v32")
    with patch("mlagen.targets.sm_90a.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(name, problem)


EDITS = [
    pytest.param(name, *edit, id=f"{name}: {what}")
    for name, own in (
        ("mla_sparse_decode_sm90", CONVERTED), ("mla_sparse_prefill_sm90", FETCHED),
    )
    for what, edit in {**EVERYWHERE, **own}.items()
]  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_kernels_themselves_are_right(name):
    assert verify(kernel(name), **CALLS[name]).passed


@pytest.mark.parametrize(("name", "old", "new", "seen"), EDITS)
def test_an_edit_is_found(name, old, new, seen):
    artifact = kernel(name)
    text, count = re.subn(old, new, artifact.text)
    assert count
    report = verify(replace(artifact, text=text), modes=("latest",), **CALLS[name])
    assert not report.clean if seen == FINDING else not report.right, report.facts()
