"""How decode work is dealt out, against a model that looks at every row and tile."""

import heapq
import itertools
from dataclasses import replace

import numpy as np
import pytest

from mlagen.attention.latent.block_sizes import BLOCK_ROWS, LINES_A_ROW, MERGE_WARPS
from mlagen.errors import ConfigError
from mlagen.families.mla_decode import costs
from mlagen.families.mla_decode import plan as mla_decode_plan
from mlagen.families.mla_decode.even_splits import boundaries, longest_split
from mlagen.families.mla_decode.plan import OPEN_END, merge_blocks, plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.unit import B200_SMS, HOPPER, Unit


def of_b200(config, ctas):
    """A block of a B200, or a CTA pair."""
    return Unit(64 * ctas, B200_SMS // ctas, costs.on_b200(config, ctas), ctas)


CONFIGS = (
    MlaDecodeConfig(128),
    MlaDecodeConfig(12, q_len=3),
    MlaDecodeConfig(40, q_len=8),
    MlaDecodeConfig(24, num_kv_heads=3, q_len=2),
    MlaDecodeConfig(16, q_len=2, mask="sliding_window_causal[200]"),
    MlaDecodeConfig(16, q_len=2, mask="chunked_causal[500]"),
)


def owners(config, work, lengths, q_lens, most=64):
    """For each row of q and tile of its sequence: which item computes it, found one by one. `most`:
    rows of an item."""
    starts = np.concatenate([[0], np.cumsum(q_lens)]) * config.num_heads
    found = {}
    for number, item in enumerate(work.items.tolist()):
        sequence, first_row, rows, above, behind, first, end, _, _, kv_head = item[:10]
        assert 1 <= rows <= most and (first < end or work.together > 1)
        assert behind == q_lens[sequence] - 1
        for row in range(first_row, first_row + rows):
            own = row - starts[sequence]
            assert 0 <= own < q_lens[sequence] * config.num_heads
            assert own == above + row - first_row
            assert own % config.num_heads // config.group == kv_head
            for tile in range(first, min(end, -(-lengths[sequence] // TILE) + 3)):
                assert (row, tile) not in found
                found[row, tile] = number
    return found


@pytest.mark.parametrize(
    "planned", [{}, {"blocks": 7}, {"split_keys": 128}, {"together": 8}], ids=str
)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_every_row_has_every_tile_once(config, planned, packed):
    rng = np.random.default_rng(config.num_heads)
    lengths = [0, 1, 64, 65, *rng.integers(0, 2500, 3).tolist()]
    q_lens = rng.integers(0, config.q_len + 1, len(lengths)) if packed else None
    work = plan_work(config, lengths, q_lens=q_lens, **planned)
    tokens = [config.q_len] * len(lengths) if q_lens is None else q_lens.tolist()
    found = owners(config, work, lengths, tokens)
    rows = sum(tokens) * config.num_heads
    tiles = {b: -(-n // TILE) + 3 for b, n in enumerate(lengths)}  # the last split has no end
    assert len(found) == sum(tokens[b] * config.num_heads * tiles[b] for b in range(len(lengths)))
    assert {row for row, _ in found} == set(range(rows))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_merges_are_of_the_items_that_have_parts(config):
    lengths = [3000, 10, 700, 0]
    work = plan_work(config, lengths, split_keys=256)
    assert len({merge[1] for merge in work.merges.tolist()}) > (0 if config.cut_at_start else 1)
    slots, blocks = [], {}
    for *whole, line, share in work.merges.tolist():
        assert (share in (0, 2, 4) and whole[1] <= 4 << share) or share == 4
        blocks.setdefault(tuple(whole), []).extend(range(line, line + (MERGE_WARPS >> share)))
    assert len(blocks) * LINES_A_ROW * BLOCK_ROWS >= len(work.merges)
    for (first, count, row, rows, above, lse_at), lines in blocks.items():
        assert lines[: rows * LINES_A_ROW] == list(range(rows * LINES_A_ROW))
        assert len(lines) < rows * LINES_A_ROW + MERGE_WARPS
        parts = [i for i in work.items.tolist() if first <= i[7] < first + count]
        assert len(parts) == count > 1
        parts.sort(key=lambda item: item[7])
        assert all(p[1:4] == [row, rows, above] and p[8] == lse_at for p in parts)
        assert parts[0][5] == 0 and parts[-1][6] == OPEN_END
        assert all(a[6] == b[5] for a, b in itertools.pairwise(parts))
        slots += range(first, first + count)
    assert sorted(slots) == list(range(work.slots))
    assert sorted(i[7] for i in work.items.tolist() if i[7] >= 0) == sorted(slots)
    assert len(work.merges) <= merge_blocks(work.slots, len(blocks))
    alone = {i[0] for i in work.items.tolist() if i[7] < 0}
    assert alone == {b for b, own in enumerate(work.splits) if len(own) == 1} and 1 in alone


@pytest.mark.parametrize("together", [2, 16])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_parts_put_together_have_slots_after_each_other(config, together):
    lengths = [3000, 10, 700, 0]
    work = plan_work(config, lengths, together=together)
    assert not len(work.merges) and work.together == together
    assert sorted(work.items[:, 7].tolist()) == list(range(work.slots))
    for item in work.items.tolist():
        assert item[10] == together and item[11] <= item[7] < item[11] + together
        parts = work.items[work.items[:, 11] == item[11]]
        assert len(parts) == together and (parts[:, :5] == item[:5]).all()
        parts = parts[np.argsort(parts[:, 7])]
        assert parts[0, 5] == 0 and parts[-1, 6] == OPEN_END
        assert (parts[:-1, 6] == parts[1:, 5]).all()


@pytest.mark.parametrize(
    ("batch", "keys", "together", "parts"),
    [(8, 2048, 16, 16), (32, 2048, 4, 4), (64, 8192, 2, 2), (1, 8192, 1, 64), (128, 2048, 1, 1)],
)
def test_parts_are_put_together_where_all_run_at_once(batch, keys, together, parts):
    few = replace(HOPPER, costs=costs.SWAP_AB, together=32)
    work = plan_work(MlaDecodeConfig(16), [keys] * batch, unit=few, together=None)
    assert (work.together, len(work.items)) == (together, batch * parts)
    fixed = plan_work(MlaDecodeConfig(16), [keys] * batch, unit=few, together=None, split_keys=256)
    assert fixed.together == 1


def lse_of(config, item, row, batch, tokens):
    """Where the kernel writes the LSE of a row of an item."""
    stride = config.q_len if tokens is None else tokens
    above = item[3] + row - item[1]
    token, head = divmod(above, config.num_heads)
    return item[8] + head * stride + token


@pytest.mark.parametrize("packed", [False, True])
def test_every_lse_has_its_place(packed):
    config = MlaDecodeConfig(24, q_len=3)
    q_lens = [2, 0, 3, 1] if packed else None
    work = plan_work(config, [5, 6, 7, 8], q_lens=q_lens)
    tokens = sum(q_lens) if packed else None
    places = [
        lse_of(config, item, row, 4, tokens)
        for item in work.items.tolist()
        for row in range(item[1], item[1] + item[2])
    ]
    assert work.lse_stride == (tokens if packed else 3)
    assert sorted(places) == list(range(24 * (tokens if packed else 12)))


def test_fixed_splits_are_those_of_the_sequence_alone():
    config = MlaDecodeConfig(16, mask="sliding_window_causal[1000]", q_len=2)
    lengths = [5000, 300, 1024, 1025, 0]
    together = plan_work(config, lengths, split_keys=256).splits
    for length, own in zip(lengths, together, strict=True):
        assert plan_work(config, [length], split_keys=256).splits == (own,)
    assert together[0] == (0, 64, 68, 72, 76)  # from key 3999 on
    assert plan_work(MlaDecodeConfig(16), [1025], split_keys=256).splits == ((0, 4, 8, 12, 16),)


def ended(config, work, lengths, blocks):
    """When the last item and the merge end, in microseconds, each SM taking the next item as it
    becomes free: one by one what the plan's estimate only bounds."""
    items, known = work.items.tolist(), HOPPER.costs
    crowd = min(len(items), blocks) / blocks
    free = [0.0] * blocks
    most = 0
    for item in items:
        tiles = max(min(item[6], -(-lengths[item[0]] // TILE)) - item[5], 0)
        tiles += tiles > 1 and tiles % 2
        most = max(most, tiles)
        heapq.heappush(free, heapq.heappop(free) + known.item(tiles, crowd))
    return max(free) + known.once(most, work.slots)


@pytest.mark.parametrize("heads", [16, 64, 128])
@pytest.mark.parametrize(
    "lengths",
    [
        [8192] * 128,
        [131072],
        [32768] * 16,
        [4096] * 5,
        [1024],
        [100] * 300,
        [65536, *[500] * 20],
        [3000, 40, 0, 7000, 12000],
        np.random.default_rng(0).integers(2048, 8192, 128).tolist(),
        np.random.default_rng(1).integers(1, 20000, 33).tolist(),
    ],
    ids=lambda lengths: f"{len(lengths)} of {max(lengths)}",
)
def test_no_other_even_split_ends_earlier(heads, lengths, monkeypatch):
    """All lengths of a split, one by one, each dealt out item by item."""
    config = MlaDecodeConfig(heads)
    time = ended(config, plan_work(config, lengths, blocks=132), lengths, 132)
    tiles = -(-np.array(lengths) // TILE)
    sizes = range(1, tiles.max() + 1) if tiles.sum() < 6000 else range(16, tiles.max() + 1, 16)
    least = np.inf
    for size in sizes:
        counts = np.maximum(-(-tiles // size), 1)
        if counts.sum() * -(-heads // 64) <= 8 * 132:
            monkeypatch.setattr(mla_decode_plan, "even_counts", lambda *_, c=counts: c)
            least = min(least, ended(config, plan_work(config, lengths), lengths, 132))
    assert time <= 1.06 * least


@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 16, 64, 129])
def test_even_splits(tiles):
    for count in range(1, tiles + 1):
        ends = [0, *boundaries(tiles, count), tiles]
        sizes = np.diff(ends)
        assert len(sizes) == count and sizes.min() >= 1
        assert sizes.max() <= longest_split(tiles, count) <= -(-tiles // count) + 1
        if tiles >= 2 * count:
            assert not np.any(np.array(ends[:-1]) % 2) and sizes.max() - sizes.min() <= 3
        else:
            assert sizes.max() - sizes.min() <= 1


def test_longest_first_and_row_blocks_side_by_side():
    work = plan_work(MlaDecodeConfig(128), [100, 5000, 900], blocks=1)
    assert work.items[:, 0].tolist() == [1, 1, 2, 2, 0, 0]
    assert work.items[:2, 1].tolist() == [128, 192]


@pytest.mark.parametrize(
    "lengths, given, words",
    [
        ([1, -2], {}, ["lengths[1]=-2", "0 .. "]),
        ([1.5], {}, ["lengths is no list of integers"]),
        ([[1]], {}, ["lengths is no list of integers"]),
        ([1], {"q_lens": [9]}, ["q_lens[0]=9", "0 .. 2"]),
        ([1], {"q_lens": [1, 1]}, ["1 lengths", "2 sequences"]),
        ([1], {"blocks": 0}, ["blocks=0"]),
        ([1], {"split_keys": 32}, ["split_keys=32", "multiple of 64"]),
        ([1], {"together": 3}, ["together=3", "1, 2, 4, 8, 16"]),
        ([1], {"together": 2, "split_keys": 64}, ["together=2", "split_keys"]),
    ],
)
def test_refusals(lengths, given, words):
    with pytest.raises(ConfigError) as caught:
        plan_work(MlaDecodeConfig(8, q_len=2), lengths, **given)
    for word in words:
        assert word in str(caught.value)


def test_no_sequences_no_work():
    work = plan_work(MlaDecodeConfig(8), [])
    assert work.items.shape == (0, 12) and work.merges.shape == (0, 8) and not work.slots
