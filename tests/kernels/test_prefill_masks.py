"""Windowed masks: right for every cut, and no more work than the tiles that are seen."""

import pytest
from prefill_cases import Case, judge, make_inputs, run

from mlagen.families.mha_prefill.problem import MhaConfigV2

MATRIX = 32  # MFMAs a wave and tile at depth 128: 16 for S, 16 for O
COMPARES = 32  # compares of one side of one masked tile
WINDOWS = [1, 64, 65, 100, 2**31 - 1]


def work(config, rows, start_pos, keys):
    """(tiles walked, wave tiles cut at their end, wave tiles cut at their start) by the masks'
    definition, row by row of whole query tiles."""
    tiles = ends = starts = 0
    for q_tile in range(config.q_tiles(rows)):
        walked = config.tiles(q_tile, seq_len=rows, start_pos=start_pos, num_keys=keys)
        tiles += len(walked)
        for wave in range(config.num_warps):
            first = start_pos + q_tile * config.q_tile + wave * config.q_block_size
            own = range(first, first + config.q_block_size)
            end = min(min(config.mask.end_key(q), keys) for q in own)
            start = max(config.mask.first_key(q) for q in own)
            ends += sum(config.kv_block * (t + 1) > end for t in walked)
            starts += sum(config.kv_block * t < start for t in walked)
    return tiles, ends, starts


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["sliding_window_causal", "chunked_causal"])
@pytest.mark.parametrize("sequence", [(300, 0, 300), (100, 500, 550), (290, 77, 367)], ids=str)
def test_every_window_is_right_and_runs_its_tiles_alone(prefill, kind, window, sequence):
    kernel = prefill(mask=f"{kind}[{window}]")
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    result = judge(kernel, make_inputs(config, Case((sequence,), seed=window % 97)))
    counts = result.emulation.counts
    tiles, ends, starts = work(config, *sequence)
    heads = config.num_heads
    assert counts.get("v_mfma_f32_32x32x16_bf16", 0) == heads * tiles * config.num_warps * MATRIX
    assert counts.get("v_cmp_gt_i32", 0) == heads * ends * COMPARES
    assert counts.get("v_cmp_le_i32", 0) == heads * starts * COMPARES


def test_a_narrow_window_of_a_long_sequence_costs_its_tiles(prefill):
    """S 8192 with window 512: 12 tiles a query tile at most, nothing of the 128 others, and
    compares on cut tiles alone."""
    kernel = prefill(num_heads=1, mask="sliding_window_causal[512]")
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    sequence = (8192, 0, 8192)
    counts = run(kernel, make_inputs(config, Case((sequence,)))).emulation.counts
    tiles, ends, starts = work(config, *sequence)
    assert tiles <= 12 * 32
    assert counts["v_mfma_f32_32x32x16_bf16"] == tiles * config.num_warps * MATRIX
    assert counts["v_cmp_gt_i32"] == ends * COMPARES
    assert counts["v_cmp_le_i32"] == starts * COMPARES
    assert ends + starts < tiles * config.num_warps  # most tiles run no compare at all


def test_rows_behind_all_keys_see_nothing(prefill):
    """The window has passed the keys: O = 0 and LSE = -inf, with and without tiles to walk."""
    kernel = prefill(mask="sliding_window_causal[64]", lse=True)
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    for sequence in ((60, 1000, 100), (250, 20, 100)):
        result = judge(kernel, make_inputs(config, Case((sequence,))))
        first = max(0, 100 + 64 - 1 - sequence[1])  # the row whose window starts after them
        assert (result.output[0, first:] == 0).all()
        assert (result.lse[0, :, first:] == float("-inf")).all()
        assert first == 0 or (result.lse[0, :, :first] > float("-inf")).all()
