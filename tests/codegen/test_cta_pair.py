"""CTA pairs: the GEMM example with products of two blocks, and what a pair cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlagen.app.build import build_artifact
from mlagen.artifact import Artifact
from mlagen.dsl.knobs import Knobs
from mlagen.errors import ProofError, ScheduleError
from mlagen.targets.nvidia.codegen import tensor
from mlagen.targets.nvidia.dsl import PipelineSpace, Smem, Tmem
from mlagen.targets.sm_90a.limits import SM_90A
from mlagen.targets.sm_100a.limits import SM_100A
from mlagen.verify import verify

GEMM = str(Path(__file__).parents[2] / "examples" / "gemm_bf16.py")
SIZES = {"m": 300, "n": 140, "k": 328}


@cache
def pair() -> Artifact:
    return build_artifact(GEMM, {}, {"ctas": 2, "n_tile": 128}, target="sm_100a")


def test_a_pair_multiplies() -> None:
    """Three blocks have rows; the fourth belongs to the second pair."""
    artifact = pair()
    assert artifact.manifest.grid_for(SIZES) == (4, 2, 1)
    assert ".multicast::cluster" in artifact.text and "kind::f16" in artifact.text
    assert verify(artifact, **SIZES).passed


EDITS = {
    "commits that reach one block": (r"mov\.b16 %both, 3;", "mov.b16 %both, 1;"),
    "bytes of one block announced": (r"\[%bar\], 49152;", "[%bar], 24576;"),
    "bytes that complete the block's own barrier": (
        r"mapa\.shared::cluster\.u32 %bar, %bar, 0;",
        "mapa.shared::cluster.u32 %bar, %bar, %rank;",
    ),
    "the same rows of B in both": (r"mad\.lo\.u32 (%brow0), %rank, 64", r"mad.lo.u32 \1, 0, 64"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(name: str) -> None:
    artifact = pair()
    text, count = re.subn(*EDITS[name], artifact.text)
    assert count
    report = verify(replace(artifact, text=text), modes=("latest",), **SIZES)
    assert not (report.clean and report.right), report.facts()


def space(limits: Any = SM_100A) -> PipelineSpace:
    tmem = Tmem(limits.tmem_columns, limits.tmem_alloc_min)
    return PipelineSpace(Knobs({}), Smem(limits.smem_bytes), tmem)


def test_what_a_pair_cannot_be() -> None:
    with pytest.raises(ScheduleError, match="target without tensor memory"):
        space(SM_90A).cta_cluster(2, pair=True)
    with pytest.raises(ScheduleError, match="a CTA pair of 1 blocks"):
        space().cta_cluster(1, pair=True)
    with pytest.raises(ScheduleError, match="the blocks are no CTA pair"):
        space().role("math", warps=1, single=True, leader=True)
    s = space()
    s.cta_cluster(2, pair=True)
    s.role("softmax", warpgroups=1)
    s.role("math", warps=1, single=True, leader=True)
    tile = s.smem.tile("K", "k", rows=64, row_bytes=128, slots=2)
    with pytest.raises(ScheduleError, match="some are of the leader alone"):
        s.smem.pipeline("keys", tile, producer="softmax", consumer=("math", "softmax"))
    with pytest.raises(ScheduleError, match="fills tiles of SMEM for both blocks"):
        s.smem.pipeline("keys", tile, producer="math", consumer="softmax")
    scores = s.smem.pipeline(
        "scores", s.columns("S", 32, slots=2), producer="math", consumer="softmax", releases=4
    )
    keys = s.smem.pipeline("keys", tile, producer="softmax", consumer="math", producer_threads=128)
    assert (scores.empties, scores.arrivals, scores.pair) == (8, 1, "from leader")
    assert (keys.arrivals, keys.pair) == (256, "to leader")


def test_a_commit_that_reaches_one_block(monkeypatch: Any) -> None:
    one = {False: tensor.COMMITS[False], True: tensor.COMMITS[False]}
    monkeypatch.setattr(tensor, "COMMITS", one)
    with pytest.raises(ProofError, match="stays at wait"):
        build_artifact(GEMM, {}, {"ctas": 2}, target="sm_100a")
