"""Both oracles of sparse MLA over products of e4m3: an honest kernel is within their bounds, and
each fault is outside of those that can show it."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from e4m3_simulation import E4M3, FAULTS, OF_ROWS, simulate

from mlagen.attention.latent.order import HOPPER_E4M3, OF_E4M3
from mlagen.attention.latent.walk import Keys, ScoreWalk
from mlagen.attention.latent.weights import RoundedWeights, maxima
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import SPARSE_KINDS, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded

ORACLES = (exact, rounded)


def call(data, *, heads=4, d_qk=576, stored="e4m3", **sizes):
    config = MlaSparsePrefillConfig(heads, d_qk=d_qk, dtype="fp8_e4m3", rows=stored, compute="fp8")
    return mla_sparse_prefill_inputs(config, data=data, **{"rows": 2, "topk": 330, **sizes})


@lru_cache
def demo(data, stored="e4m3"):
    """Lists of valid and of invalid places, sinks near the LSE."""
    made = call(data, pattern="invalid", stored=stored)
    near = exact(made, order=OF_E4M3).lse.values[0, 0, :, 0] + [0.0, -1.0, 2.0, -3.0]
    made = replace(made, sink=near.astype(np.float32))
    return made, [oracle(made, order=OF_E4M3) for oracle in ORACLES]


@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("data", SPARSE_KINDS)
@pytest.mark.parametrize("stored", ["e4m3", "e4m3_row"])
def test_an_honest_kernel_is_within_both_bounds(data, d_qk, stored):
    made = call(
        data, d_qk=d_qk, stored=stored, rows=6, lengths=(330, 171, 64, 330, 0, 1), seed=3,
        sink=(0.7, -np.inf, 95.0, -20.0),
    )  # fmt: skip
    outputs = simulate(made)
    for oracle in ORACLES:
        for one in compare_outputs(made, oracle(made, order=OF_E4M3), outputs).values():
            assert one.passed, (one.oracle, one.worst)


ALL = ("o", "max_logits", "lse")
# The outputs that show a fault: by both oracles, and by the one that rounds.
SHOWS = {
    "dropped key": (("lse",), ("o",)),
    "swapped keys": (("o",), ()),
    "scale off by 1 %": (("lse", "max_logits"), ("o",)),
    "stale rescale": (("o",), ()),
    "invalid key counted": (("o", "lse"), ()),
    "sink left out": (("o",), ()),
    "sink in the LSE": (("lse",), ()),
    "P without its bias": ((), ("o",)),
    "bias in the LSE": (("lse",), ()),
    "sink without the bias": (("o",), ()),
    "M that follows at once": ((), ("o",)),
    "P of bf16": ((), ("o",)),
    "scale of values left out": (("o",), ()),
    "P without row scales": (("o",), ()),
    "M not lifted": ((), ("o",)),
}


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        *(("e4m3", fault) for fault in FAULTS),
        *(("e4m3_row", fault) for fault in FAULTS | OF_ROWS if "of values" not in fault),
    ],
)
def test_each_bound_is_sharp(stored, fault):
    by_both, by_rounding = SHOWS[fault]
    made, both = demo((FAULTS | OF_ROWS)[fault], stored)
    outputs = simulate(made, fault=fault)
    for expected in both:
        comparisons = compare_outputs(made, expected, outputs)
        shown = by_both + (by_rounding if expected is both[1] else ())
        for output in shown:
            assert comparisons[output].max_ratio > 2, (output, comparisons[output].max_ratio)


# ---- which M a kernel may have -------------------------------------------------------------------


ORDER = replace(OF_E4M3, tile=2)


def keys(tiles):
    """Two a tile, without scales."""
    return Keys(np.zeros((2 * tiles, 512)), np.ones(2 * tiles), False)


def walk(tops, error):
    """A row's walk over tiles of two keys: the largest score of each, off by `error`, and one that
    is 14 below it."""
    scores = np.array([[[top, top - 14.0] for top in tops]])
    base = np.ceil(np.maximum.accumulate(scores.max(axis=2), axis=1))
    base[np.isneginf(base)] = 0
    errors, none = np.full(scores.shape, error), np.zeros(base.shape)
    one = np.zeros(1)
    return ScoreWalk(scores, errors, base, none, none > 0, none, none, one, one, OF_E4M3.behind)


@pytest.mark.parametrize(
    "tops, least, most",
    [
        ([3.5, 5.9, 6.5], [4, 4, 7], [4, 4, 7]),  # 6.5 alone is more than 2 above M
        ([3.0, 3.5, 9.5], [3, 3, 10], [4, 4, 10]),  # 3 may be just above 3, until M moves
        ([3.5, 6.0, 6.5], [4, 4, 5], [4, 7, 7]),  # 6 may be just more than 2 above M
        ([-np.inf, 1.5, -9.0], [0, 2, 2], [0, 2, 2]),
    ],
)
def test_m_is_known_but_for_errors_of_scores(tops, least, most):
    found = maxima(walk(tops, 1e-5), keys(len(tops)), ORDER)
    np.testing.assert_array_equal(found, [[[least], [most]]])


@pytest.mark.parametrize(
    "tops, known",
    [
        ([3.3, 5.2, 6.0], [[1690, 1690, 1690 + 3 * 512]]),  # 5.2 is not 2 above where M is
        ([-np.inf, 3.3, 9.9], [[0, 1690, 1690 + 7 * 512]]),
        # 3 may be just above 3: then M is a step higher from the first tile on.
        ([3.0, 9.5], [[3 * 512, 10 * 512], [3 * 512 + 1, 10 * 512 + 1]]),
    ],
)
def test_m_moves_by_whole_numbers_from_where_it_begins(tops, known):
    found = maxima(walk(tops, 1e-5), keys(len(tops)), replace(HOPPER_E4M3, tile=2))
    assert len(found) == len(known)
    for (least, most), wanted in zip(found, known, strict=True):
        np.testing.assert_array_equal(512 * least, [wanted])
        np.testing.assert_array_equal(512 * most, [wanted])


def test_p_below_the_normal_range_may_be_what_follows_from_either_m():
    """At an M of 3 and of 4 a P of 2^-14 exp2(M) is rounded with steps of 2^-15 and 2^-14."""
    made = walk([3.0], 1e-5)
    p = np.exp2(-made.distance) * 1.3
    stored, off = RoundedWeights.of(made, keys(1), ORDER).rounded(p, np.zeros(p.shape))
    both = [(p * 2.0**6 * 2.0**at).astype(E4M3).astype(float) / 2.0 ** (6 + at) for at in (0, -1)]
    assert both[0][0, 0, 1] != both[1][0, 0, 1]
    np.testing.assert_array_equal(stored, both[0])
    for other in both:
        assert (np.abs(other - stored) <= off).all()
    assert off[0, 0, 0] == 0
