"""MlaDecodeConfig, its inputs and the data that is made for it."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.latent.made_up import LATENT_KINDS
from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.attention.made_up import SINK_EVERY, STEP
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig

BF16 = ml_dtypes.bfloat16


def refusal(call, *arguments, **named):
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **named)
    return str(caught.value)


# ---- the problem ---------------------------------------------------------------------------------


def test_defaults_are_the_absorbed_form():
    config = MlaDecodeConfig(128)
    assert (config.d_qk, config.d_v, config.d_rope) == (576, 512, 64)
    assert (config.num_kv_heads, config.page_size, config.q_len) == (1, 64, 1)
    assert (config.dtype, config.output_dtype) == ("bf16", "bf16")


@pytest.mark.parametrize("heads", [1, 8, 12, 40, 64, 128])
@pytest.mark.parametrize("page", [1, 16, 32, 64, 128, 192, 1024])
def test_legal_heads_and_pages(heads, page):
    config = MlaDecodeConfig(heads, page_size=page)
    assert (config.num_heads, config.page_size) == (heads, page)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"num_heads": 0}, ["num_heads=0", "1 .. 128"]),
        ({"num_heads": 129}, ["num_heads=129", "1 .. 128"]),
        ({"num_heads": 64.0}, ["num_heads=64.0", "integer"]),
        ({"num_heads": True}, ["num_heads=True", "integer"]),
        ({"num_kv_heads": 3}, ["num_kv_heads=3", "1, 2, 4 or 8", "one latent row"]),
        ({"num_kv_heads": 16}, ["num_kv_heads=16", "at most 8"]),
        (
            {"num_kv_heads": 2, "cache_dtype": "fp8_rope_aware"},
            ["num_kv_heads=2", "fp8_rope_aware", "num_kv_heads=1"],
        ),
        ({"mask": "diagonal"}, ["unknown mask 'diagonal'"]),
        ({"d_qk": 192, "d_v": 128}, ["d_qk=192, d_v=128", "d_qk=576, d_v=512"]),
        ({"d_v": 576}, ["d_v=576", "512 latent columns and 64 rotary"]),
        ({"d_qk": 320, "d_v": 256}, ["d_qk=320", "d_qk=576, d_v=512"]),
        ({"page_size": 24}, ["page_size=24", "1, 16 or 32 or a multiple of 64", "16 or 32"]),
        ({"page_size": 0}, ["page_size=0", "multiple of 64"]),
        ({"page_size": -64}, ["page_size=-64", "multiple of 64"]),
        ({"page_size": 100}, ["page_size=100", "near 100: 64 or 128"]),
        ({"q_len": 0}, ["q_len=0", "1 .. 8"]),
        ({"q_len": 9}, ["q_len=9", "1 .. 8", "prefill"]),
        ({"dtype": "fp16"}, ["dtype=fp16", "dtype is bf16, fp8_e4m3 or fp8_rope_aware"]),
        ({"dtype": "fp8_rope_aware"}, ["dtype=fp8_rope_aware", "cache_dtype=bf16", "dtype=bf16"]),
        ({"cache_dtype": "fp8_e5m2"}, ["cache_dtype=fp8_e5m2", "bf16", "fp8_e4m3"]),
        ({"output_dtype": "fp32"}, ["output_dtype=fp32", "output_dtype is bf16"]),
    ],
)
def test_an_illegal_value_is_refused_with_what_fits(fields, words):
    message = refusal(MlaDecodeConfig, **{"num_heads": 64, **fields})
    for word in words:
        assert word in message


def test_fields_go_to_plain_values_and_back():
    config = MlaDecodeConfig(40, page_size=128, q_len=3)
    fields = config.to_fields()
    assert set(fields) == {field.name for field in dataclasses.fields(MlaDecodeConfig)}
    assert MlaDecodeConfig.from_fields(fields) == config
    texts = {name: str(value) for name, value in fields.items()}
    assert MlaDecodeConfig.from_fields(texts) == config
    assert MlaDecodeConfig.example().num_heads == 64


@pytest.mark.parametrize(
    "fields, words",
    [
        ({}, ["needs num_heads"]),
        ({"num_heads": 64, "page": 64}, ["no field 'page'", "page_size"]),
        ({"num_heads": "many"}, ["num_heads='many'", "integer"]),
    ],
)
def test_bad_fields_are_refused_by_name(fields, words):
    message = refusal(MlaDecodeConfig.from_fields, fields)
    for word in words:
        assert word in message


def test_configs_are_values():
    assert len({MlaDecodeConfig(64), MlaDecodeConfig(64, q_len=1), MlaDecodeConfig(128)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        MlaDecodeConfig(64).q_len = 2


def test_pages_and_visible_keys():
    config = MlaDecodeConfig(64, q_len=3)
    assert [config.pages(n) for n in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert config.visible(10) == (range(8), range(9), range(10))
    assert config.visible(1) == (range(0), range(0), range(1))
    assert config.visible(0) == (range(0),) * 3
    null = MlaDecodeConfig(64, q_len=3, mask="null")
    assert null.visible(2) == (range(2),) * 3 and not null.causal
    window = MlaDecodeConfig(64, q_len=3, mask="sliding_window_causal[4]")
    assert window.visible(6) == (range(4), range(1, 5), range(2, 6))
    assert window.visible(1) == (range(0), range(0), range(1)) and window.window == 4
    chunks = MlaDecodeConfig(12, q_len=3, mask="chunked_causal[4]")
    assert chunks.visible(6) == (range(4), range(4, 5), range(4, 6))
    assert chunks.visible(1) == (range(0), range(0), range(1)) and chunks.chunk == 4
    assert window.cut_at_start and chunks.cut_at_start and not null.cut_at_start


# ---- one call's inputs ---------------------------------------------------------------------------

SMALL = MlaDecodeConfig(4, page_size=16)


def good():
    return {
        "q": np.zeros((3, 1, 4, 576), BF16),
        "cache": np.zeros((5, 16, 1, 576), BF16),
        "block_table": np.array([[0, 1], [4, -1], [2, 99]], np.int32),
        "cache_lengths": np.array([32, 16, 0], np.int32),
        "scale": MODEL_SCALE,
    }


def table(*rows):
    return np.array(rows, np.int32)


def test_lengths_of_zero_and_unused_entries_are_legal():
    inputs = MlaDecodeInputs(SMALL, **{**good(), "cache_lengths": np.array([32, 16, 0], np.int32)})
    assert (inputs.batch, inputs.num_blocks, inputs.max_pages) == (3, 5, 2)
    assert inputs.rows(2).shape == (0, 576)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q": np.zeros((3, 1, 4, 576), np.float32)}, ["q has dtype float32", "bf16"]),
        ({"q": np.zeros((3, 4, 576), BF16)}, ["q has shape (3, 4, 576)", "(*, 1, 4, 576)"]),
        ({"q": np.zeros((3, 2, 4, 576), BF16)}, ["q has shape (3, 2, 4, 576)"]),
        ({"cache": np.zeros((5, 64, 1, 576), BF16)}, ["cache has shape", "(*, 16, 1, 576)"]),
        ({"cache": np.zeros((5, 16, 1, 512), BF16)}, ["cache has shape (5, 16, 1, 512)"]),
        ({"cache": np.zeros((0, 16, 1, 576), BF16)}, ["cache has shape", "at least 1"]),
        ({"block_table": table([0, 1], [4, 0])}, ["block_table has shape (2, 2)", "(3, *)"]),
        ({"block_table": np.zeros((3, 0), np.int32)}, ["block_table has shape (3, 0)"]),
        ({"block_table": np.zeros((3, 2))}, ["block_table has dtype float64", "int32"]),
        ({"block_table": [[0]]}, ["block_table is a list"]),
        ({"cache_lengths": np.zeros(3, np.int64)}, ["cache_lengths has dtype int64", "int32"]),
        ({"cache_lengths": np.zeros(2, np.int32)}, ["cache_lengths has shape (2,)", "(3)"]),
        ({"cache_lengths": table(32, 33, 0)}, ["cache_lengths[1]=33", "0 .. 32", "2 pages of 16"]),
        ({"cache_lengths": table(32, 16, -1)}, ["cache_lengths[2]=-1", "0 .. 32"]),
        ({"cache_lengths": table(32, 17, 0)}, ["block_table[1, 1]=-1", "0 .. 4", "17 rows in 2"]),
        ({"cache_lengths": table(32, 16, 17)}, ["block_table[2, 1]=99", "0 .. 4"]),
        ({"scale": 0.0}, ["scale=0.0", "positive", "192 ** -0.5"]),
        ({"scale": math.nan}, ["scale=nan"]),
        ({"scale": math.inf}, ["scale=inf"]),
        ({"scale": 3e38}, ["scale=3e+38", "finite in fp32"]),
        ({"scale": None}, ["scale=None", "number"]),
        ({"q_scale": 0.5}, ["q_scale=0.5", "bf16 queries", "dtype=fp8_e4m3"]),
        ({"kv_scale": 0.5}, ["kv_scale=0.5", "a bf16 cache", "cache_dtype=fp8_e4m3"]),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    message = refusal(MlaDecodeInputs, SMALL, **{**good(), **change})
    for word in words:
        assert word in message


def test_rows_come_through_the_table():
    rng = np.random.default_rng(0)
    cache = rng.standard_normal((5, 16, 1, 576)).astype(BF16)
    inputs = MlaDecodeInputs(
        SMALL,
        **{
            **good(),
            "cache": cache,
            "block_table": table([3, 1], [4, 0], [2, 2]),
            "cache_lengths": table(20, 1, 32),
        },
    )
    flat = cache.reshape(80, 576).astype(float)
    np.testing.assert_array_equal(inputs.rows(0), flat[[*range(48, 64), *range(16, 20)]])
    np.testing.assert_array_equal(inputs.rows(1), flat[64:65])


# ---- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", LATENT_KINDS)
def test_data_is_deterministic_and_poisoned_where_no_key_is(data):
    config = MlaDecodeConfig(4, page_size=32, q_len=2)

    def make(seed):
        return mla_decode_inputs(config, lengths=[70, 0, 1, 64], data=data, seed=seed)

    first, again, other = make(3), make(3), make(4)
    for name in ("q", "cache", "block_table", "cache_lengths"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    assert not np.array_equal(first.q, other.q)
    assert first.cache_lengths.tolist() == [70, 0, 1, 64]
    used = [first.block_table[b, : config.pages(n)] for b, n in enumerate((70, 0, 1, 64))]
    pages = np.concatenate(used)
    assert len(set(pages.tolist())) == len(pages) == 6 < first.num_blocks
    assert pages.tolist() != sorted(pages.tolist())
    # Keys are finite, all else is not a number.
    finite = np.isfinite(first.cache.astype(np.float32)).all(axis=(2, 3))
    assert finite.sum() == 70 + 0 + 1 + 64
    for sequence in range(4):
        assert np.isfinite(first.rows(sequence)).all()
    unused = np.setdiff1d(np.arange(first.num_blocks), pages)
    assert np.isnan(first.cache[unused].astype(np.float32)).all()
    # Past a sequence's pages the table leads astray, in both ways.
    behind = np.concatenate([first.block_table[b, len(p) :] for b, p in enumerate(used)])
    assert set(behind.tolist()) == {-1, int(behind.max())} and behind.max() in unused


def test_lengths_are_drawn_short_and_long():
    config = MlaDecodeConfig(1)
    lengths = mla_decode_inputs(config, batch=40, max_length=900, data="randn").cache_lengths
    assert len(lengths) == 40 and lengths.min() >= 1 and lengths.max() <= 900
    assert (lengths < 30).sum() > 8 and (lengths > 300).sum() > 2


@pytest.mark.parametrize(
    "change, word",
    [
        ({"batch": 0}, "batch=0"),
        ({"max_length": 0}, "max_length=0"),
        ({"lengths": []}, "lengths []"),
        ({"lengths": [5, -1]}, "lengths [5, -1]"),
        ({"data": "zeros"}, "unknown data 'zeros'"),
        ({"scale": -1.0}, "scale=-1.0"),
    ],
)
def test_bad_requests_for_data_are_refused(change, word):
    assert word in refusal(mla_decode_inputs, MlaDecodeConfig(1), **{"max_length": 9, **change})


def weights_and_scores(inputs):
    """[heads, keys] of the first sequence: softmax weights, and scores in log2 units."""
    scores = inputs.q[0, 0].astype(float) @ inputs.rows(0).T * inputs.scale * math.log2(math.e)
    weights = np.exp2(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True), scores


def test_realistic_data_has_sinks_outliers_and_moderate_scores():
    inputs = mla_decode_inputs(MlaDecodeConfig(32), lengths=[2000])
    weights, scores = weights_and_scores(inputs)
    sinks = weights[:, ::SINK_EVERY].sum(axis=1)
    assert (sinks > 0.2).sum() >= 4 and (sinks < 0.1).sum() >= 4
    others = np.delete(scores, np.arange(0, 2000, SINK_EVERY), axis=1)
    assert 1 < others.std(axis=1).mean() < 6
    latents = inputs.rows(0)[:, :512]
    assert (np.abs(latents.mean(axis=0)) > 4).sum() == 4
    assert np.median(np.abs(latents.mean(axis=0))) < 0.5


def test_stairs_make_maxima_move_late_or_not_at_all():
    config = MlaDecodeConfig(8)
    for data, moves in (("late_max", 4), ("falling", 0)):
        inputs = mla_decode_inputs(config, lengths=[1024], data=data)
        scores = weights_and_scores(inputs)[1].reshape(8, 16, 64).max(axis=2)
        running = np.maximum.accumulate(scores, axis=1)
        large = (np.diff(running, axis=1) > STEP / 2).sum(axis=1)
        assert (large >= moves).all() if moves else (large == 0).all()
