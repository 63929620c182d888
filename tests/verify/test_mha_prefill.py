"""The shipped prefill kernel in the emulator, against both oracles over its tile counts."""

from functools import lru_cache

import pytest

from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.verify import verify

HEADS = [(1, 1), (4, 1), (8, 2), (6, 3)]
DATA = ["realistic", "late_max", "falling", "randn"]


@lru_cache
def artifact(heads, mask, output_dtype="bf16"):
    return build("mha_prefill_v2", MhaConfigV2(*heads, mask=mask, output_dtype=output_dtype))


def check(built, **shape):
    report = verify(built, **shape)
    assert report.passed, str(report.error())
    assert report.worst().undecided == 0
    return report


@pytest.mark.parametrize("rest", [0, 1, 47])
@pytest.mark.parametrize("tiles", range(1, 14))
def test_every_tile_count_and_partial_tile(tiles, rest):
    """N tiles whose last holds `rest` keys (0: all 64), null and causal, in turn for all heads."""
    num_keys = 64 * tiles if rest == 0 else 64 * (tiles - 1) + rest
    turn = 3 * tiles + rest
    heads = HEADS[turn % 4]
    shape = {"num_keys": num_keys, "data": DATA[(tiles + rest) % 4], "seed": turn}
    check(artifact(heads, "null"), seq_len=33, modes=["latest"], **shape)
    seq_len = min(num_keys, 65)
    start_pos = num_keys - seq_len
    modes = ["latest", "earliest"] if tiles < 6 else ["latest"]
    check(artifact(heads, "causal"), seq_len=seq_len, start_pos=start_pos, modes=modes, **shape)


@pytest.mark.parametrize("heads", HEADS)
def test_causal_with_several_query_tiles_and_batches(heads):
    check(artifact(heads, "causal"), batch=2, seq_len=300, modes=["latest"])


def test_causal_queries_beyond_the_last_key():
    check(artifact((4, 1), "causal"), seq_len=260, num_keys=100, start_pos=64, modes=["random"])


def test_fp32_output():
    report = check(artifact((8, 2), "causal", "fp32"), seq_len=130, modes=["latest"])
    # Not rounded at the end, so the rounding oracle's bound is that of fp32 sums alone.
    rounding = report.runs[0].comparisons[1]
    assert rounding.max_error < 0.02


def test_executed_instructions_are_reported():
    run = check(artifact((1, 1), "causal"), seq_len=32, num_keys=32).runs[0]
    # One tile, 8 waves: 16 MFMAs for K Q^T (2 blocks of keys, 8 steps) and 16 for V^T P.
    assert run.counts["v_mfma_f32_32x32x16_bf16"] == 8 * 32
    assert run.wave_instructions == sum(run.counts.values())
