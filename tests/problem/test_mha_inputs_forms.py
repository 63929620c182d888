"""Inputs of ragged and paged calls: what is refused, with numbers, and what the made-up data is."""

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.made_up import NO_PAGE
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2

BF16 = ml_dtypes.bfloat16
RAGGED = MhaConfigV2(4, 2, ragged=True)
PAGED = MhaConfigV2(4, 2, page_size=16)
BOTH = MhaConfigV2(4, 2, ragged=True, page_size=16, sink=True)


def zeros(*shape, dtype=BF16):
    return np.zeros(shape, dtype)


def ints(*numbers):
    return np.array(numbers, np.int32)


GOOD = {
    RAGGED: {
        "q": zeros(8, 4, 128),
        "k": zeros(20, 2, 128),
        "v": zeros(20, 2, 128),
        "start_pos": ints(0, 5, 0),
        "q_offsets": ints(0, 3, 3, 8),
        "kv_offsets": ints(0, 3, 20, 20),
    },
    PAGED: {
        "q": zeros(2, 8, 4, 128),
        "k": zeros(5, 16, 2, 128),
        "v": zeros(5, 16, 2, 128),
        "start_pos": ints(0, 5),
        "kv_lengths": ints(33, 0),
        "page_table": np.array([[4, 0, 2], [-1, 99, -1]], np.int32),
    },
    BOTH: {
        "q": zeros(8, 4, 128),
        "k": zeros(5, 16, 2, 128),
        "v": zeros(5, 16, 2, 128),
        "q_offsets": ints(0, 8),
        "kv_lengths": ints(16),
        "page_table": np.array([[4]], np.int32),
        "sinks": np.zeros(4, np.float32),
    },
}


def refusal(config, **change):
    with pytest.raises(ConfigError) as caught:
        MhaInputs(config, **{"scale": 0.1, **GOOD[config], **change})
    return str(caught.value)


@pytest.mark.parametrize("config", GOOD)
def test_what_fits_is_taken(config):
    inputs = MhaInputs(config, **GOOD[config], scale=0.1)
    assert inputs.start_pos.dtype == np.int32 and len(inputs.sequences) == inputs.batch


def test_sequences_say_where_everything_is():
    inputs = MhaInputs(RAGGED, **GOOD[RAGGED], scale=0.1)
    found = [(s.first_row, s.rows, s.start_pos, s.keys) for s in inputs.sequences]
    assert found == [(0, 3, 0, 3), (3, 0, 5, 17), (3, 5, 0, 0)]
    assert (inputs.batch, inputs.seq_len, inputs.keys) == (3, 5, 17)
    assert inputs.lse_shape == (4, 8)
    paged = MhaInputs(PAGED, **GOOD[PAGED], scale=0.1)
    assert (paged.batch, paged.seq_len, paged.keys) == (2, 8, 33)
    assert paged.lse_shape == (2, 4, 8)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q_offsets": None}, ["q_offsets is missing", "ragged=True"]),
        ({"kv_offsets": None}, ["kv_offsets is missing"]),
        ({"kv_lengths": ints(1, 2, 3)}, ["kv_lengths is given", "it takes q_offsets, kv_offsets"]),
        ({"page_table": ints(1)}, ["page_table is given", "page_size=0"]),
        ({"sinks": np.zeros(4, np.float32)}, ["sinks is given", "sink=False"]),
        ({"num_keys": 20}, ["num_keys=20", "kv_offsets tells"]),
        ({"q": zeros(1, 8, 4, 128)}, ["q has shape (1, 8, 4, 128)", "(*, 4, 128)"]),
        ({"k": zeros(1, 20, 2, 128)}, ["k has shape (1, 20, 2, 128)", "(*, 2, 128)"]),
        ({"v": zeros(19, 2, 128)}, ["k has shape (20, 2, 128)", "v has (19, 2, 128)"]),
        ({"q_offsets": [0, 8]}, ["q_offsets is a list"]),
        ({"q_offsets": np.array([0, 8])}, ["q_offsets has dtype int64", "astype(np.int32)"]),
        ({"q_offsets": ints(0)}, ["q_offsets has 1 entries"]),
        ({"q_offsets": ints(1, 3, 3, 8)}, ["q_offsets[0]=1", "start at 0"]),
        ({"q_offsets": ints(0, 5, 3, 8)}, ["q_offsets[2]=3 is below q_offsets[1]=5"]),
        ({"q_offsets": ints(0, 3, 3, 7)}, ["q_offsets[3]=7", "rows of q, 8"]),
        ({"q_offsets": ints(0, 3, 3, 9)}, ["q_offsets[3]=9", "rows of q, 8"]),
        ({"kv_offsets": ints(0, 3, 20)}, ["kv_offsets has shape (3,)", "(4)"]),
        ({"kv_offsets": ints(0, 3, 20, 21)}, ["kv_offsets[3]=21", "rows of k and v, 20"]),
        ({"kv_offsets": ints(0, 30, 20, 20)}, ["kv_offsets[2]=20 is below kv_offsets[1]=30"]),
        ({"start_pos": ints(0, -5, 0)}, ["start_pos[1]=-5", "negative"]),
        ({"start_pos": ints(0, 5)}, ["start_pos has shape (2,)", "(3)"]),
        ({"start_pos": -1}, ["start_pos=-1"]),
        ({"start_pos": 2**31}, ["start_pos=2147483648"]),
        ({"start_pos": "0"}, ["start_pos='0' is neither"]),
        ({"start_pos": ints(0, 0, 2**31 - 100)}, ["start_pos[2]=2147483548", "2147483647"]),
    ],
)
def test_what_does_not_fit_a_ragged_call_is_refused(change, words):
    message = refusal(RAGGED, **change)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "change, words",
    [
        ({"page_table": None}, ["page_table is missing"]),
        ({"kv_lengths": None}, ["kv_lengths is missing", "page_size=16"]),
        ({"q_offsets": ints(0, 8)}, ["q_offsets is given", "it takes kv_lengths, page_table"]),
        ({"k": zeros(5, 32, 2, 128)}, ["k has shape (5, 32, 2, 128)", "(*, 16, 2, 128)"]),
        ({"k": zeros(0, 16, 2, 128)}, ["k has shape (0, 16, 2, 128)", "at least 1"]),
        ({"kv_lengths": ints(-1, 0)}, ["kv_lengths[0]=-1", "0 .. 48"]),
        ({"kv_lengths": ints(0, 49)}, ["kv_lengths[1]=49", "3 pages of 16 keys"]),
        ({"kv_lengths": ints(33)}, ["kv_lengths has shape (1,)", "(2)"]),
        ({"kv_lengths": ints(33, 1)}, ["page_table[1, 0]=-1", "0 .. 4", "1 keys in 1 pages"]),
        ({"kv_lengths": ints(33, 17)}, ["page_table[1, 0]=-1"]),
        (
            {"page_table": np.array([[4, 5, 2], [0, 0, 0]], np.int32)},
            ["page_table[0, 1]=5", "0 .. 4", "33 keys in 3 pages"],
        ),
        ({"page_table": np.zeros((2, 2), np.int32)}, ["kv_lengths[0]=33", "0 .. 32", "2 pages"]),
        ({"page_table": np.zeros((1, 3), np.int32)}, ["page_table has shape (1, 3)", "(2, *)"]),
        ({"page_table": np.zeros((2, 3), np.uint32)}, ["page_table has dtype uint32"]),
    ],
)
def test_what_does_not_fit_a_paged_call_is_refused(change, words):
    message = refusal(PAGED, **change)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "sinks, words",
    [
        (None, ["sinks is missing", "sink=True"]),
        ([0.0] * 4, ["sinks is a list"]),
        (np.zeros(3, np.float32), ["sinks has shape (3,)", "(4,)", "one a query head"]),
        (np.zeros((1, 4), np.float32), ["sinks has shape (1, 4)"]),
        (np.zeros(4), ["sinks has dtype float64", "fp32"]),
        (np.array([0, np.nan, 0, 0], np.float32), ["sinks[1]=nan"]),
        (np.array([0, 0, np.inf, 0], np.float32), ["sinks[2]=inf"]),
        (np.array([0, 0, 0, -3e38], np.float32), ["sinks[3]=-3", "at most 2.3"]),
    ],
)
def test_sinks_that_do_not_fit_are_refused(sinks, words):
    message = refusal(BOTH, sinks=sinks)
    for word in words:
        assert word in message


def test_sinks_of_bf16_are_widened_exactly():
    narrow = np.array([0.5, -np.inf, 3.140625, -7.0], BF16)
    inputs = MhaInputs(BOTH, **{**GOOD[BOTH], "sinks": narrow}, scale=0.1)
    assert inputs.sinks.dtype == np.float32
    assert np.array_equal(inputs.sinks, narrow.astype(np.float32))


def test_a_dense_call_takes_one_start():
    with pytest.raises(ConfigError, match=r"start_pos is an array, .* dense"):
        MhaInputs(
            MhaConfigV2(4, 2), zeros(1, 8, 4, 128), zeros(1, 8, 2, 128), zeros(1, 8, 2, 128), 0.1,
            ints(0),
        )  # fmt: skip


# ---- made-up data --------------------------------------------------------------------------------


@pytest.mark.parametrize("data", KINDS)
@pytest.mark.parametrize("config", [RAGGED, PAGED, BOTH])
def test_made_up_calls_are_deterministic_and_poisoned(config, data):
    shape = {"lengths": [30, 0, 5]} if config.ragged else {"batch": 3, "seq_len": 6}

    def make(seed):
        return mha_inputs(
            config, **shape, num_keys=[33, 4, 0], start_pos=[0, 2, 70], data=data, seed=seed
        )

    first, again, other = make(3), make(3), make(4)
    assert [(s.keys, s.start_pos) for s in first.sequences] == [(33, 0), (4, 2), (0, 70)]
    for name in ("q", "k", "v"):
        mine, same = getattr(first, name), getattr(again, name)
        assert mine.dtype == BF16 and mine.flags.c_contiguous
        assert np.array_equal(mine.view(np.uint16), same.view(np.uint16))
        assert not np.array_equal(mine.view(np.uint16), getattr(other, name).view(np.uint16))
    keys = 0
    for sequence in first.sequences:
        for head in range(2):
            k, v = first.key_rows(sequence, head)
            assert len(k) == len(v) == sequence.keys
            assert np.isfinite(k.astype(np.float32)).all()
            assert np.isfinite(v.astype(np.float32)).all()
        keys += sequence.keys
    if config.page_size:
        for pool in (first.k, first.v):
            finite = np.isfinite(pool.astype(np.float32))
            assert finite.sum() == keys * 2 * 128 and not finite.all()
        used = [first.page_table[s.index, : config.pages(s.keys)] for s in first.sequences]
        assert len(np.unique(np.concatenate(used))) == 4
        behind = first.page_table[2]
        assert NO_PAGE in behind and (behind >= 0).any()


def test_pages_are_shuffled():
    config = MhaConfigV2(1, 1, page_size=16)
    table = mha_inputs(config, seq_len=4, num_keys=320).page_table[0, :20]
    assert sorted(table) != list(table) and abs(np.diff(table)).max() > 1


def test_sinks_lie_below_and_above_the_scores():
    config = MhaConfigV2(16, 4, sink=True)
    inputs = mha_inputs(config, seq_len=64)
    assert np.isneginf(inputs.sinks).sum() == 1
    finite = inputs.sinks[np.isfinite(inputs.sinks)]
    assert finite.min() < 0 and finite.max() > 8


def test_jumps_move_a_few_rows_of_every_wave_by_much_and_by_little():
    config = MhaConfigV2(2, 1, mask="null")
    inputs = mha_inputs(config, seq_len=64, num_keys=640, data="jumps")
    scores = np.einsum("shd,nd->hsn", inputs.q[0].astype(float), inputs.k[0, :, 0].astype(float))
    scores *= inputs.scale * np.log2(np.e)
    tiles = scores.reshape(2, 64, 10, 64).max(axis=3)
    growth = np.diff(np.maximum.accumulate(tiles, axis=2), axis=2)
    jumping = (growth > 8).reshape(2, 2, 32, 9).sum(axis=2)  # rows of a wave, by tile
    assert ((jumping > 0) & (jumping < 32)).any()
    assert ((growth > 1) & (growth < 8)).any()


@pytest.mark.parametrize(
    "config, change, words",
    [
        (MhaConfigV2(4, 2), {"lengths": [4]}, ["lengths=4", "dense"]),
        (MhaConfigV2(4, 2), {"num_keys": [4]}, ["num_keys=4", "one number"]),
        (MhaConfigV2(4, 2), {"start_pos": [4]}, ["start_pos=4"]),
        (PAGED, {"lengths": [4]}, ["lengths=4", "not ragged"]),
        (PAGED, {"num_keys": [4, 5]}, ["num_keys=4,5 are 2 numbers for 1 sequences"]),
        (PAGED, {"start_pos": -1}, ["start_pos=-1", "negative"]),
        (RAGGED, {"lengths": [4, -1]}, ["lengths=4,-1"]),
        (RAGGED, {"lengths": []}, ["lengths="]),
        (RAGGED, {"lengths": [4], "batch": 1}, ["batch=1 and lengths=4", "twice"]),
        (RAGGED, {"batch": 0}, ["batch=0"]),
        (RAGGED, {"lengths": [4, 4], "num_keys": [3, -1]}, ["num_keys=3,-1", "negative"]),
    ],
)
def test_bad_requests_for_data_are_refused(config, change, words):
    with pytest.raises(ConfigError) as caught:
        mha_inputs(config, **change)
    for word in words:
        assert word in str(caught.value)


def test_lengths_are_drawn_where_none_are_given():
    rows = [s.rows for s in mha_inputs(RAGGED, batch=5, seq_len=40).sequences]
    assert rows[0] == 40 and len(rows) == 5 and len(set(rows)) > 2 and max(rows) == 40
