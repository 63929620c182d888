"""A maximum that is a whole number and moves seldom: wherever it moves, a kernel is within both
bounds of sparse MLA's oracles, and one whose maximum is no whole number is not."""

import math

import ml_dtypes
import numpy as np
import pytest
from mla_decode_simulation import wgmma
from mla_sparse_simulation import _keys

from mlagen.attention.latent.order import SELDOM_MOVED
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded

BF16, F32 = ml_dtypes.bfloat16, np.float32
TILE = 64


def product(acc, a, b):
    for step in range(0, a.shape[1], 16):
        acc = wgmma(acc, a[:, step : step + 16], b[step : step + 16])
    return acc


def attention(q, keys, seen, scale, sink, *, moves, whole=True):
    """O, LSE and the largest score of one query's heads. `moves(rise)`: whether M follows a score
    that is so far above it; it must where that is more than the slack."""
    c, ln2 = F32(scale * math.log2(math.e)), F32(math.log(2))
    rng = np.random.default_rng(7)
    o, total = np.zeros((len(q), 512), F32), np.zeros(len(q), F32)
    m, best = np.full(len(q), -np.finfo(F32).max), np.full(len(q), -np.inf, F32)
    for first in range(0, len(keys), TILE):
        rows = keys[first : first + TILE]
        rows = np.pad(rows, ((0, TILE - len(rows)), (0, 0)))
        s = product(np.zeros((len(q), TILE), F32), q, rows.T)
        s[:, np.flatnonzero(~np.pad(seen[first : first + TILE], (0, TILE))[:TILE])] = -np.inf
        best = np.maximum(best, s.max(axis=1))
        largest = (s.max(axis=1) * c).astype(F32)
        with np.errstate(over="ignore", invalid="ignore"):
            follows = moves(largest - m) & ~np.isneginf(largest)
            new = np.where(follows, np.ceil(largest) if whole else largest, m).astype(F32)
            alpha = np.exp2(m - new).astype(F32)
            p = np.exp2((s.astype(float) * float(c) - new[:, None]).astype(F32))
        p = (p * (1 + rng.uniform(-(2.0**-22), 2.0**-22, p.shape))).astype(F32)
        total = total * alpha + p.sum(axis=1, dtype=F32)
        stored = p.astype(BF16).astype(F32)
        o, m = product(o * alpha[:, None], stored, rows[:, :512]), new
    with np.errstate(over="ignore", divide="ignore"):
        drawn = np.exp2((sink * F32(math.log2(math.e)) - m).astype(F32))
        lse = np.where(total == 0, -np.inf, (m + np.log2(total)).astype(F32) * ln2)
    o = np.where(total[:, None] == 0, 0, o / np.where(total == 0, 1, total + drawn)[:, None])
    return o.astype(BF16), lse.astype(F32), ((best * c).astype(F32) * ln2).astype(F32)


def call(data, topk=330):
    config = MlaSparsePrefillConfig(4)
    return mla_sparse_prefill_inputs(
        config, rows=3, topk=topk, data=data, seed=5, sink=(0.5, -3.0, 90.0, -np.inf)
    )


def outputs(inputs, **more):
    found = [
        attention(inputs.q[row].astype(F32), *_keys(inputs, "", (row,), None)[:2],
                  inputs.score_scale, inputs.sink, **more)
        for row in range(inputs.tokens)
    ]  # fmt: skip
    names = ("o", "lse", "max_logits")
    return {
        name: np.stack(part) for name, part in zip(names, zip(*found, strict=True), strict=True)
    }


def late(rise):
    return rise > SELDOM_MOVED.slack


def at_once(rise):
    return rise > 0


def at_random(rise):
    return late(rise) | (np.random.default_rng(3).random(len(rise)) < 0.5) & (rise > 0)


@pytest.mark.parametrize("moves", [late, at_once, at_random])
@pytest.mark.parametrize("data", ["realistic", "peaked", "late_max"])
def test_wherever_it_moves(data, moves):
    inputs = call(data)
    made = outputs(inputs, moves=moves)
    for oracle in (exact, rounded):
        for one in compare_outputs(inputs, oracle(inputs, order=SELDOM_MOVED), made).values():
            assert one.passed, (one.oracle, one.worst)


def test_no_whole_number_rounds_others():
    inputs = call("realistic")
    made = outputs(inputs, moves=at_once, whole=False)
    assert compare_outputs(inputs, exact(inputs, order=SELDOM_MOVED), made)["o"].passed
    comparison = compare_outputs(inputs, rounded(inputs, order=SELDOM_MOVED), made)["o"]
    assert comparison.max_ratio > 2
