"""How items are dealt out to persistent blocks: that all work is there is held by the model of
`test_mla_decode_plan`, here it is who has it."""

import itertools

import numpy as np
import pytest
from test_mla_decode_plan import CONFIGS, of_b200, owners

from mlagen.families.mla_decode.even_splits import longest_first
from mlagen.families.mla_decode.plan import OPEN_END, plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.shares import ITEM, LEAST
from mlagen.families.mla_decode.unit import HOPPER

EVEN = np.random.default_rng(0).integers(4096, 8192, 128).tolist()
MIXED = [8192, 3000] * 40  # of 128 heads 1.2 row blocks a block
UNEVEN = np.random.default_rng(1).integers(1, 16384, 128).tolist()


def tiles_of(work, lengths):
    """Tiles of each item."""
    ends = -(-np.array(lengths)[work.items[:, 0]] // TILE)
    return np.maximum(np.minimum(work.items[:, 6], ends) - work.items[:, 5], 0)


def loads(work, lengths):
    """What each block has, in tiles: of its items, and what they cost besides."""
    tiles = tiles_of(work, lengths) + ITEM
    starts = work.shares.tolist()
    return np.array([tiles[a:b].sum() for a, b in itertools.pairwise(starts)])


WIDE = MlaDecodeConfig(128)
PAIR = of_b200(WIDE, 2)
B200 = {"unit": of_b200(WIDE, 1), "takes_in": False}


@pytest.mark.parametrize(
    "planned", [{}, {"blocks": 7}, {"split_keys": 128}, {"blocks": 9, **B200}], ids=str
)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_every_row_has_every_tile_once(config, planned, packed):
    rng = np.random.default_rng(config.num_heads)
    lengths = [0, 1, 64, 65, *rng.integers(0, 2500, 3).tolist()]
    q_lens = rng.integers(0, config.q_len + 1, len(lengths)) if packed else None
    work = plan_work(config, lengths, q_lens=q_lens, persistent=True, **planned)
    tokens = [config.q_len] * len(lengths) if q_lens is None else q_lens.tolist()
    found = owners(config, work, lengths, tokens)
    tiles = {b: -(-n // TILE) + 3 for b, n in enumerate(lengths)}
    assert len(found) == sum(tokens[b] * config.num_heads * tiles[b] for b in range(len(lengths)))
    blocks = planned.get("blocks", 132)
    assert work.shares.dtype == np.int32 and work.shares.shape == (blocks + 1,)
    assert work.shares[0] == 0 and work.shares[-1] == len(work.items)
    assert (np.diff(work.shares) >= 0).all()


@pytest.mark.parametrize("heads, tokens", [(16, 1), (64, 1), (128, 1), (128, 2)])
@pytest.mark.parametrize("lengths", [EVEN, UNEVEN, [8192] * 80, [100] * 300], ids=len)
def test_shares_are_even(heads, tokens, lengths):
    """Blocks end together: the fullest has little more than the average, of its tiles and what a
    cut costs; or nothing is cut, and cutting would have cost more than it would have gained."""
    config = MlaDecodeConfig(heads, q_len=tokens)
    work = plan_work(config, lengths, persistent=True)
    held = loads(work, lengths)
    row_blocks = -(-heads * tokens // 64)
    whole = row_blocks * sum(-(-n // TILE) + ITEM for n in lengths)
    if work.slots:
        # Each gang of blocks may have a cut at its end, and rounds it to even tiles.
        assert held.max() <= whole / 132 + 2 * (ITEM + LEAST)
    else:
        costs = HOPPER.costs
        # A share that is cut has one item more.
        gained = held.max() - whole / 132 - ITEM
        gained *= costs.tile + costs.crowd[-1][1]
        cuts = 132 // row_blocks - 1
        assert gained < costs.merge + 2.0 + 2 * cuts * row_blocks * costs.part


def test_what_is_not_cut_stays_whole():
    config = MlaDecodeConfig(128)
    work = plan_work(config, MIXED, persistent=True)
    tiles = tiles_of(work, MIXED)
    for sequence, own in enumerate(work.splits):
        mine = work.items[work.items[:, 0] == sequence]
        assert len(mine) == 2 * len(own)
        last = mine[:, 6] == OPEN_END
        if len(own) == 2:  # the second takes in the first
            assert ((mine[:, 7] < 0) == last).all()
            assert (mine[:, 10] == np.where(last, 1, -1)).all()
        else:
            assert ((mine[:, 7] < 0) == (len(own) == 1)).all() and not mine[:, 10].any()
        assert not np.any(np.array(own) % 2)
    parts = work.items[:, 7] >= 0
    assert parts.any() and not parts.all() and tiles[parts].min() >= LEAST
    assert (work.items[:, 6] == OPEN_END).sum() == 160


@pytest.mark.parametrize("lengths", [MIXED, EVEN], ids=["cut", "whole"])
def test_row_blocks_of_the_same_keys_are_side_by_side(lengths):
    """Two blocks have the same ranges of the same sequences, one after the other."""
    work = plan_work(MlaDecodeConfig(128), lengths, persistent=True)
    starts = work.shares.tolist()
    keys = work.items[:, [0, 5, 6]]
    for block in range(0, 132, 2):
        a, b, c = starts[block : block + 3]
        assert np.array_equal(keys[a:b], keys[b:c])
        assert (work.items[b:c, 3] - work.items[a:b, 3] == 64).all()


@pytest.mark.parametrize("lengths", [[131072], [8192] * 16, [4096] * 5])
def test_few_row_blocks_are_split_as_ever_one_item_a_block(lengths):
    config = MlaDecodeConfig(128)
    work, ever = plan_work(config, lengths, persistent=True), plan_work(config, lengths)
    assert work.splits == ever.splits and np.diff(work.shares).max() == 1


def gives_and_takes(work):
    """Where each slot is stored and taken in: (block, place among the block's items)."""
    block = np.repeat(np.arange(len(work.shares) - 1), np.diff(work.shares))
    nth = np.arange(len(block)) - work.shares[block]
    given, taken = {}, {}
    for item, at in zip(work.items.tolist(), zip(block, nth, strict=True), strict=True):
        slot, takes, first = item[7], item[10], item[11]
        if takes < 0:
            assert slot not in given
            given[slot] = at, item
        if takes > 0:
            assert first not in taken
            taken[first] = at, item
    return given, taken


@pytest.mark.parametrize("heads, tokens", [(16, 1), (64, 1), (128, 1), (128, 2)])
@pytest.mark.parametrize(
    "lengths", [EVEN, UNEVEN, MIXED, [32768] * 128, [1024] * 16, [4096] * 30, [100000, *EVEN]],
    ids=len,
)  # fmt: skip
def test_parts_are_taken_in_behind_where_they_are_made(heads, tokens, lengths):
    """Each part once, by the same rows, in a block that is started later; the merge has the rest.
    Of a line that is cut, a block hands over its first item and takes in with its last."""
    config = MlaDecodeConfig(heads, q_len=tokens)
    work = plan_work(config, lengths, persistent=True)
    given, taken = gives_and_takes(work)
    assert given.keys() == taken.keys()
    last = np.diff(work.shares) - 1
    for slot, ((maker, nth), part) in given.items():
        (taker, at), item = taken[slot]
        assert maker < taker and nth == 0 and at == last[taker]
        assert part[:5] == item[:5] and part[8:10] == item[8:10]
    merged = {s for first, n, *_ in work.merges.tolist() for s in range(first, first + n)}
    assert not merged & given.keys()
    assert merged | given.keys() == set(range(work.slots))


def test_fixed_splits_are_dealt_out_longest_first():
    config, lengths = MlaDecodeConfig(16), UNEVEN
    work = plan_work(config, lengths, persistent=True, split_keys=2048)
    assert work.splits == plan_work(config, lengths, split_keys=2048).splits
    held = loads(work, lengths)
    assert held.max() - held.min() <= 2048 // TILE + ITEM


def test_no_work():
    work = plan_work(MlaDecodeConfig(8), [], persistent=True, blocks=3)
    assert work.items.shape == (0, 12) and work.shares.tolist() == [0, 0, 0, 0]
    empty = plan_work(MlaDecodeConfig(8), [0, 0], persistent=True, blocks=3)
    assert empty.shares.tolist() == [0, 1, 2, 2]


def merge(costs, work):
    """Microseconds, estimated; rows in two parts count twice."""
    pieces = np.array([len(own) for own in work.splits])
    return costs.once(2, int((pieces * (1 + (pieces == 2)))[pieces > 1].sum()))


@pytest.mark.parametrize(
    ("batch", "keys", "cut"),
    [(32, 4096, True), (32, 32768, True), (64, 4096, False), (128, 2048, False), (128, 8192, True)],
)
def test_pairs_of_a_b200_have_the_shares_that_end_first(batch, keys, cut):
    """Equal shares with their merge, sequences whole, or even splits with a pair each. Estimated,
    none of these ends later than an item a pair."""
    config, lengths = MlaDecodeConfig(128), [keys] * batch
    costs = PAIR.costs
    work = plan_work(config, lengths, persistent=True, takes_in=False, unit=PAIR)
    assert bool(work.slots) == cut and work.shares[-1] == len(work.items)
    tiles, counts = tiles_of(work, lengths), np.diff(work.shares)
    held = np.array([tiles[a:b].sum() for a, b in itertools.pairwise(work.shares.tolist())])
    used = counts > 0
    ends = (costs.start + (counts - 1) * costs.further + held * costs.tile)[used]
    one_each = plan_work(config, lengths, unit=PAIR)
    alone = longest_first(costs.item(tiles_of(one_each, lengths), 1.0), PAIR.blocks)
    assert ends.max() + merge(costs, work) <= alone + merge(costs, one_each)
    if cut:  # but for what is cut off last, shares are equal
        assert np.median(ends) > 0.93 * ends.max()
