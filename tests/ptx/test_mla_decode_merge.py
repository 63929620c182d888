"""The merge kernel's numbers without a GPU: rows of blocks and warps of every sharing."""

import numpy as np
import pytest
from ptx_runs import run

from mlagen.attention.latent.block_sizes import MERGE_INTS
from mlagen.codegen import build
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.problem.formats import BF16

HEADS = 20


def launch(work, partial_o, partial_lse, rows):
    """O and LSE [rows] from poisoned memory; an empty merge after the others writes nothing."""
    o, lse = np.full((rows, 512), np.nan, BF16), np.full(rows, np.nan, np.float32)
    merges = np.concatenate([work.merges, np.zeros((1, MERGE_INTS), np.int32)])
    run(
        build("mla_decode_merge_sm90", MlaDecodeMergeConfig(HEADS)).text,
        (len(merges), 1),
        {
            "merges": merges, "partial_o": partial_o, "partial_lse": partial_lse, "o": o,
            "lse": lse, "lse_stride": 1,
        },
    )  # fmt: skip
    return o.astype(np.float64), lse


@pytest.mark.parametrize(
    "keys", [(65, 64 * 4), (64 * 7, 64 * 11, 30), (64 * 25,), (64 * 70,)], ids=str
)
def test_parts_are_added_up(keys):
    """Up to 4, 8, 16, 32 and more splits; parts without keys hold NaN, a row without has none."""
    config = MlaDecodeConfig(HEADS)
    work = plan_work(config, keys, split_keys=64)
    rng = np.random.default_rng(len(work.merges))
    partial_o = rng.standard_normal((work.slots, 64, 512)).astype(np.float32)
    partial_lse = (4 * rng.standard_normal((work.slots, 64))).astype(np.float32)
    nothing = rng.random((work.slots, 64)) < 0.2
    nothing[:, 3] = True
    partial_lse[nothing], partial_o[nothing] = -np.inf, np.nan
    o, lse = launch(work, partial_o, partial_lse, HEADS * len(keys))
    written = np.zeros(HEADS * len(keys), bool)
    for slot, count, query, rows, above, place, *_ in np.unique(work.merges[:, :6], axis=0):
        assert above == 0 and rows == HEADS
        parts = slice(slot, slot + count)
        weight = np.exp2(partial_lse[parts, :rows].astype(np.float64))
        total = weight.sum(axis=0)
        some = total > 0
        added = np.where(nothing[parts, :rows, None], 0, partial_o[parts, :rows])
        expected = (weight[:, :, None] * added).sum(axis=0) / np.where(some, total, 1)[:, None]
        at = slice(query, query + rows)
        assert not np.isnan(o[at]).any()
        assert (np.abs(o[at] - expected) <= 2.0**-8 * np.abs(expected) + 1e-5).all()
        with np.errstate(divide="ignore"):
            logs = np.log(total)
        assert np.array_equal(np.isneginf(lse[at]), ~some) and not some[3]
        assert np.allclose(lse[at][some], logs[some], rtol=0, atol=1e-5)
        assert place == query
        written[at] = True
    alone = np.isin(np.arange(len(keys)), [i for i, s in enumerate(work.splits) if len(s) == 1])
    assert (written == ~np.repeat(alone, HEADS)).all()
    assert np.isnan(o[~written]).all() and np.isnan(lse[~written]).all()
