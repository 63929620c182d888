"""Plans for a B200: row blocks of CTA pairs, costs, and splits of different lengths, which a Hopper
GPU has too."""

from dataclasses import replace

import numpy as np
import pytest
from test_mla_decode_plan import of_b200, owners

from mlagen.families.mla_decode import costs
from mlagen.families.mla_decode.even_splits import end, even_counts, longest_first
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.uneven_splits import uneven_ends
from mlagen.families.mla_decode.unit import HOPPER

WIDE = MlaDecodeConfig(128)
PAIR = of_b200(WIDE, 2)
UNITS = {"blocks": of_b200(WIDE, 1), "pairs": PAIR}


@pytest.mark.parametrize("planned", [{}, {"blocks": 5}, {"split_keys": 128}], ids=str)
@pytest.mark.parametrize("heads, q_len", [(65, 1), (128, 1), (40, 8), (128, 2), (16, 1)])
def test_every_row_has_every_tile_once(heads, q_len, planned):
    config = MlaDecodeConfig(heads, q_len=q_len)
    lengths = [0, 1, 64, 65, 700, 2000]
    work = plan_work(config, lengths, unit=PAIR, **planned)
    found = owners(config, work, lengths, [q_len] * len(lengths), most=128)
    tiles = sum(-(-n // TILE) + 3 for n in lengths)  # the last split has no end
    assert len(found) == q_len * heads * tiles and work.slot_rows == 128


@pytest.mark.parametrize("unit", UNITS)
def test_uneven_splits_cover_all_tiles(unit):
    """And are taken where they pay, by the estimate."""
    lengths = [8192] * 128
    work = plan_work(WIDE, lengths, unit=UNITS[unit])
    assert len({len(own) for own in work.splits}) > 1, "sequences are split differently"
    most = UNITS[unit].rows
    found = owners(WIDE, work, [8192] * 128, [1] * 128, most=most)
    assert len(found) == 128 * 128 * (8192 // TILE + 3)


def ended(unit, tiles, row_blocks, splits):
    """When the last item and the merge end, by the table of costs."""
    pieces = [np.diff([*own, n]) for own, n in zip(splits, tiles.tolist(), strict=True)]
    gang = int(row_blocks[0])
    times = np.repeat(unit.costs.item(np.concatenate(pieces), 1.0), gang)
    parts = gang * sum(len(own) * (1 + (len(own) == 2)) for own in pieces if len(own) > 1)
    return longest_first(times, unit.blocks) + unit.costs.once(2, parts)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("keys", [2048, 8192, 32768])
@pytest.mark.parametrize("batch", [64, 100, 128, 256])
def test_uneven_splits_are_taken_where_they_end_earlier(batch, keys, unit):
    unit = UNITS[unit]
    tiles, row_blocks = np.full(batch, keys // TILE), np.full(batch, -(-128 // unit.rows))
    counts = even_counts(tiles, row_blocks, unit)
    even = end(unit.costs, tiles, row_blocks, counts, unit.blocks)
    ends = uneven_ends(tiles, row_blocks, unit, counts)
    splits = plan_work(WIDE, [keys] * batch, unit=unit).splits
    if ends is None:
        assert {len(own) for own in splits} == {int(counts[0])}
    else:
        assert [list(own) for own in splits] == [[0, *own] for own in ends]
        assert ended(unit, tiles, row_blocks, splits) < 0.99 * even


def test_sequences_without_new_tokens():
    work = plan_work(MlaDecodeConfig(128), [5000] * 90, q_lens=[0] * 90, unit=PAIR)
    assert not len(work.items) and not work.slots


def hopper(cost, together=1):
    return replace(HOPPER, costs=cost, together=together)


FEW, FEW_FP8 = hopper(costs.SWAP_AB, 32), hopper(costs.SWAP_AB_QKV_FP8, 32)
OVER_E4M3, OF_E4M3 = hopper(costs.SEESAW_KV_FP8), hopper(costs.SEESAW_QKV_FP8)
E4M3 = {"cache_dtype": "fp8_e4m3"}
FP8 = {"dtype": "fp8_e4m3", **E4M3, "compute": "fp8"}


@pytest.mark.parametrize(
    "heads, fields, unit, batch, keys",
    [
        (128, {}, HOPPER, 100, 4096),
        (128, {}, HOPPER, 34, 3072),
        (128, FP8, OF_E4M3, 70, 1024),
        (64, E4M3, OVER_E4M3, 96, 8192),
        (16, {}, FEW, 140, 1024),
        (32, FP8, FEW_FP8, 150, 768),
    ],
)
def test_uneven_splits_of_a_hopper_gpu(heads, fields, unit, batch, keys):
    """Where equal splits leave SMs idle for long enough; every row has every tile once."""
    config, lengths = MlaDecodeConfig(heads, **fields), [keys] * batch
    unit = replace(unit, costs=costs.of_rows(unit.costs, config))
    work = plan_work(config, lengths, unit=unit)
    assert len({len(own) for own in work.splits}) > 1 and len(work.merges)
    found = owners(config, work, lengths, [1] * batch)
    assert len(found) == batch * heads * (keys // TILE + 3)


def test_equal_splits_of_a_hopper_gpu():
    """Where pieces gained nothing: blocks that memory limits, with keys of their own, and SMs."""
    tiles, ones = np.full(100, 128), np.ones(100, np.int64)
    few = replace(FEW, costs=costs.of_rows(FEW.costs, MlaDecodeConfig(16)))
    for unit in (few, HOPPER):
        assert uneven_ends(tiles, ones, unit, ones) is None
    assert uneven_ends(tiles, ones, OVER_E4M3, ones) is not None
    assert not plan_work(MlaDecodeConfig(128), [8192] * 128).slots


@pytest.mark.parametrize(
    "fields, blocks, pairs",
    [
        ({}, 1992, 1416),
        ({"cache_dtype": "fp8_e4m3"}, 1992, 1416),
        ({"cache_dtype": "fp8_rope_aware"}, 2252, 1676),
        ({"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}, 968, 664),
    ],
)
def test_costs_of_a_tile(fields, blocks, pairs):
    """Clocks of the bound by pipe at 1,856 MHz, of which 82 % are reached; where all SMs have an
    item, no less than HBM takes at 90 % of 8 TB/s."""
    config = MlaDecodeConfig(128, **fields)
    row = {"bf16": 1152, "fp8_e4m3": 576, "fp8_rope_aware": 640}[config.cache_dtype]
    for ctas, clocks in ((1, blocks), (2, pairs)):
        known = costs.on_b200(config, ctas)
        tile = clocks / 1856 / 0.82
        memory = TILE * row * 74 / 7.2e6  # two blocks share keys, or a pair has them
        assert known.item(10, 0.0) == pytest.approx(4.2 + 10 * tile)
        assert known.item(10, 1.0) == pytest.approx(4.2 + 10 * max(tile, memory))


def test_a_pair_is_two_sms():
    assert (PAIR.blocks, PAIR.rows, PAIR.filling(148), PAIR.filling(3)) == (74, 128, 74, 1)
    assert (PAIR.filling(1), PAIR.filling(0), PAIR.grid(5)) == (1, 0, {"blocks": 10})
    block = UNITS["blocks"]
    assert (block.filling(7), block.grid(5)) == (7, {"items": 5})
