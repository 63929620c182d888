"""Two blocks of a CTA cluster that share a tile's rows: what orders them is needed, and what is
missing is told."""

import re
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import pytest

from mlagen.codegen import build
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import verify

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
MODES = ("latest", "earliest", "random")
MAPPED = r"mapa\.shared::cluster\.u32 %at, %at, %own_rank;"
OWN_ONLY = [(MAPPED, ""), (r"(setp\.lt\.u32 %first, %lane), 2;", r"\1, 1;")]


@cache
def made():
    """v32 rows, 128 heads. ptxas is not asked."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build("mla_sparse_decode_sm90", MlaSparseDecodeConfig(128, rows="v32"))


@pytest.mark.parametrize("topk", [0, 50, 128, 330])
def test_shared_rows_are_right_in_all_orders(topk):
    report = verify(made(), modes=MODES, batch=1, topk=max(topk, 1), lengths=(topk,), splits=1)
    assert report.passed, report.facts()


def test_splits_of_tokens_are_clusters_of_their_own():
    report = verify(made(), batch=3, topk=400, lengths=(400, 3, 70), splits=4)
    assert report.passed, report.facts()


def test_shared_rows_of_prefill():
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        artifact = build("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(100, rows="v32"),
                         knobs={"cluster": 2})  # fmt: skip
    report = verify(artifact, rows=2, topk=200, lengths=(200, 70))
    assert report.passed, report.facts()


MUTANTS = {
    "barriers of the other block may not be there": (
        {"mbarrier-misuse"},
        [(r"barrier\.cluster\.arrive\.relaxed;.*\n\s+barrier\.cluster\.wait\.acquire;",
          "bar.sync 0;")],
    ),
    "a block ends before the other one": (
        {"shared-gone"},
        [(r"barrier\.cluster\.arrive\.release;", ""),
         (r"barrier\.cluster\.wait\.acquire;(\s+ret;)", r"\1")],
    ),
    "releases reach their own block only, which counts them": (
        {"race-raw", "race-war"},
        [*OWN_ONLY, (r"(mbarrier\.init\.shared::cta\.b64 \[%smem \+ \d+\]), 8;", r"\1, 4;")],
    ),
    "releases reach their own block only, which waits for all": ({"deadlock"}, OWN_ONLY),
    "too few bytes are expected": ({"bytes-uncounted"}, [(r"(\[%bar\]), 4096;", r"\1, 2048;")]),
    "too many bytes are expected": ({"deadlock"}, [(r"(\[%bar\]), 4096;", r"\1, 8192;")]),
    "who waits does not fence": (
        {"race-raw"},
        [(r"(@!%ready bra WAIT\w*;)\n\s+fence\.proxy\.async\.shared::cta;", r"\1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MUTANTS)
def test_what_is_missing_between_blocks_is_found(what):
    kinds, edits = MUTANTS[what]
    text = made().text
    for old, new in edits:
        text, count = re.subn(old, new, text)
        assert count, old
    report = verify(replace(made(), text=text), batch=1, topk=330, splits=1)
    assert kinds & {finding.kind for finding in report.findings}, report.facts()
