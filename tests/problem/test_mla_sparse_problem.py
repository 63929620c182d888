"""The sparse MLA problems, the formats of rows, and what a call is refused for."""

import dataclasses
import subprocess
import sys
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.coding import decode, encode
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.made_up import (
    mla_sparse_decode_inputs,
    mla_sparse_prefill_inputs,
)
from mlagen.families.mla_sparse.pool import Pool, empty_pool
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.family import family_named, shipped

BF16 = ml_dtypes.bfloat16
ALL = [(name, width) for name, row in FORMATS.items() for width in row.widths]
CONFIGS = (MlaSparsePrefillConfig, MlaSparseDecodeConfig)


# ---- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    "fields, words",
    [
        ({"num_heads": 0}, ["num_heads=0", "1 .. 128"]),
        ({"num_heads": 129}, ["num_heads=129", "1 .. 128"]),
        ({"num_heads": 64.0}, ["num_heads=64.0", "integer"]),
        ({"num_heads": True}, ["num_heads=True", "integer"]),
        ({"d_qk": 640}, ["d_qk=640", "576 or 512"]),
        ({"d_v": 576}, ["d_v=576", "d_v=512"]),
        ({"dtype": "fp16"}, ["dtype=fp16", "bf16 or fp8_e4m3"]),
        ({"output_dtype": "fp32"}, ["output_dtype=fp32", "bf16"]),
        ({"rows": "e5m2"}, ["rows=e5m2", "e4m3_block128"]),
        ({"rows": "v32", "d_qk": 512}, ["rows=v32", "d_qk=512", "d_qk=576", "e4m3_row"]),
        ({"rows": "rope_aware", "d_qk": 512}, ["rope_aware", "d_qk=576"]),
    ],
)
def test_an_illegal_value_is_refused_with_what_fits(config, fields, words):
    with pytest.raises(ConfigError) as caught:
        config(**{"num_heads": 64, **fields})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"q_len": 0}, ["q_len=0", "1 .. 8"]),
        ({"q_len": 9}, ["q_len=9", "prefill"]),
        ({"rows": "model1"}, ["rows=model1", "d_qk=512"]),
        ({"rows": "v41"}, ["rows=v41", "d_qk=512"]),
        ({"causal": 1}, ["causal=1", "true or false"]),
        ({"extra": "some"}, ["extra='some'", "true or false"]),
    ],
)
def test_an_illegal_value_of_decode_is_refused(fields, words):
    with pytest.raises(ConfigError) as caught:
        MlaSparseDecodeConfig(**{"num_heads": 64, **fields})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    "fields, words",
    [
        ({"compute": "fp16"}, ["compute=fp16", "bf16 or fp8"]),
        ({"compute": "fp8"}, ["compute=fp8", "dtype=bf16, rows=bf16", "rows=e4m3 or e4m3_row"]),
        ({"compute": "fp8", "rows": "e4m3"}, ["dtype=bf16, rows=e4m3"]),
        *(
            (
                {"compute": "fp8", "dtype": "fp8_e4m3", "rows": name},
                [f"rows={name}", "compute=bf16"],
            )
            for name in ("bf16", "e4m3_block64", "v32", "rope_aware")
        ),
    ],
)
def test_products_of_e4m3_are_over_numbers_of_one_scale(config, fields, words):
    with pytest.raises(ConfigError) as caught:
        config(64, **fields)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    for name in ("e4m3", "e4m3_row"):
        fitting = config(64, dtype="fp8_e4m3", rows=name, compute="fp8")
        assert (fitting.product_bytes, config(64).product_bytes) == (1, 2)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("compute", ["bf16", "fp8"])
def test_a_row_s_scale_has_a_limit_with_products_of_e4m3(config, compute):
    problem = config(2, dtype="fp8_e4m3", rows="e4m3_row", compute=compute)
    make = mla_sparse_prefill_inputs if config is CONFIGS[0] else mla_sparse_decode_inputs
    call = make(problem, topk=20)
    scales = call.kv_scales.copy()
    row = int(call.indices.reshape(-1, 20)[0, 3])
    scales[row] = 2.0**64
    replace(call, kv_scales=scales)
    scales[row] *= 2
    if compute == "bf16":
        replace(call, kv_scales=scales)
        return
    with pytest.raises(ConfigError, match=rf"(?s)row {row} of cache.*at most 1\.84467e\+19"):
        replace(call, kv_scales=scales)


@pytest.mark.parametrize("config", CONFIGS)
def test_fields_go_to_plain_values_and_back(config):
    problem = config(40, d_qk=512, rows="e4m3_block32", dtype="fp8_e4m3")
    fields = problem.to_fields()
    assert set(fields) == {field.name for field in dataclasses.fields(config)}
    assert config.from_fields(fields) == problem
    assert config.from_fields({name: str(value) for name, value in fields.items()}) == problem
    assert config.example().num_heads == 16
    with pytest.raises(ConfigError, match=r"(?s)no field 'row'.*did you mean rows"):
        config.from_fields({"num_heads": 4, "row": "bf16"})


def test_the_family_knows_both_problems():
    family = family_named("mla_sparse")
    assert family in shipped()
    prefill, decode = (family.kind(f"MlaSparse{name}Config") for name in ("Prefill", "Decode"))
    assert "blocks" in prefill.sizes and "splits" in decode.sizes


# ---- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, width, row_bytes, scales",
    [
        ("bf16", 576, 1152, 0), ("bf16", 512, 1024, 0), ("e4m3", 576, 576, 0),
        ("e4m3_row", 512, 512, 1), ("e4m3_block32", 576, 576, 18), ("e4m3_block64", 576, 576, 9),
        ("e4m3_block128", 576, 576, 5), ("e4m3_block128", 512, 512, 4), ("v32", 576, 656, 4),
        ("rope_aware", 576, 640, 1), ("model1", 512, 584, 7), ("v41", 512, 528, 16),
    ],
)  # fmt: skip
def test_widths_bytes_and_scales(name, width, row_bytes, scales):
    row = FORMATS[name]
    assert (row.row_bytes(width), row.scales(width)) == (row_bytes, scales)
    rows = np.random.default_rng(0).standard_normal((3, width))
    stored, side = encode(row, rows, 0.125)
    assert stored.shape == (3, row.columns(width)) and stored[0].nbytes == row_bytes
    assert (None if side is None else side.shape) == row.side_shape(width, 3)


def test_model1_pages_are_rounded_up():
    row = FORMATS["model1"]
    assert [row.page_bytes(512, rows) for rows in (1, 2, 64, 72)] == [1152, 1728, 37440, 42048]


@pytest.mark.parametrize("name, width", ALL)
def test_encoded_rows_are_near_the_numbers(name, width):
    rows = np.random.default_rng(1).standard_normal((20, width))
    rows[7, :448] = 0
    row = FORMATS[name]
    numbers = decode(row, width, *encode(row, rows, 0.125))
    unit = 0.125 if row.scale == "cache" else 1.0
    exact = numbers.exact * numbers.scales[:, None] * unit
    # 2^-4 of a number in e4m3, or half of a step below its normal range, in multiples of a scale
    # that is at most twice what 448 takes.
    step = max(0.125, 2 * np.abs(rows).max() / 448) * 2.0**-10
    assert (np.abs(exact - rows) <= 2.0**-4 * np.abs(rows) + step).all()
    if row.rope:
        np.testing.assert_allclose(exact[:, -64:], rows[:, -64:], rtol=2.0**-7)
    assert (np.abs(numbers.bf16 - numbers.exact) <= 2.0**-8 * 1.0001 * np.abs(numbers.exact)).all()
    assert (numbers.bf16 == numbers.bf16.astype(BF16).astype(float)).all()
    same = np.array_equal(numbers.bf16, numbers.exact)
    assert same == (not row.once or row.exact)  # powers of two round nothing


@pytest.mark.parametrize("name, width", ALL)
@pytest.mark.parametrize("page_size, layers, room", [(1, 2, 0), (6, 1, 16), (2, 3, 32)])
def test_rows_lie_where_addresses_say(name, width, page_size, layers, room):
    """base + page * page stride + place * row stride, and NaN everywhere else."""
    row = FORMATS[name]
    pool = empty_pool(
        row, width, pages=12 // page_size, page_size=page_size, layers=layers, room=room
    )
    stored, side = encode(row, np.random.default_rng(2).standard_normal((12, width)), 0.125)
    some = np.array([11, 0, 5])
    pool.put(some, stored[some], None if side is None else side[some])
    back, scales = pool.stored(some)
    np.testing.assert_array_equal(back.view(np.uint8), stored[some].view(np.uint8))
    if side is not None:
        np.testing.assert_array_equal(scales, side[some])
        assert np.isnan(np.delete(pool.scales, some, axis=0)).all()
    memory = pool.cache
    while memory.base is not None:
        memory = memory.base
    assert np.isnan(pool.numbers(np.array([4])).bf16).any()
    page = 11 // page_size
    flat = memory.reshape(12 // page_size, layers, -1)[page, -1]
    at = (11 % page_size) * pool.cache.strides[1]
    width_bytes = row.row_bytes(width)
    if name == "model1":
        width_bytes, at = 576, 576 * (11 % page_size)
    wanted = stored[11].view(np.uint8)[:width_bytes]
    np.testing.assert_array_equal(flat[at : at + width_bytes], wanted)
    written = sum(array.view(np.uint8).size for array in stored[some])
    assert (memory.view(np.uint8) != 0xFF).sum() <= written


# ---- calls ---------------------------------------------------------------------------------------


def prefill(rows="bf16", **fields):
    config = MlaSparsePrefillConfig(3, rows=rows, **fields)
    return mla_sparse_prefill_inputs(config, rows=2, topk=9, cache_rows=32, pattern="distinct")


def decode_call(**fields):
    config = MlaSparseDecodeConfig(3, q_len=2, **fields)
    return mla_sparse_decode_inputs(config, topk=9, extra_topk=4, cache_rows=32)


I32, F32 = np.int32, np.float32


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q": np.zeros((2, 3, 576), F32)}, "q has dtype float32"),
        ({"q": np.zeros((2, 4, 576), BF16)}, r"q has shape \(2, 4, 576\)"),
        ({"q": np.zeros((0, 3, 576), BF16)}, "every extent must be at least 1"),
        ({"indices": np.zeros((2, 9), np.int64)}, "indices has dtype int64, .*wants int32"),
        ({"indices": np.zeros((2, 0), I32)}, r"indices has shape \(2, 0\).*at least 1"),
        ({"indices": np.zeros((3, 9), I32)}, r"indices has shape \(3, 9\)"),
        ({"indices": [[0]]}, "indices is a list"),
        ({"cache": np.zeros((1, 32, 512), BF16)}, r"cache has shape \(1, 32, 512\).*576"),
        ({"cache": np.zeros((32, 576), BF16)}, r"cache has shape \(32, 576\)"),
        ({"cache": np.zeros((1, 32, 1152), BF16)[..., ::2]}, "cache has strides"),
        ({"topk_length": np.zeros(3, I32)}, r"topk_length has shape \(3,\)"),
        ({"topk_length": np.zeros(2, np.int64)}, "topk_length has dtype int64"),
        ({"sink": np.zeros(4, F32)}, r"sink has shape \(4,\)"),
        ({"sink": np.zeros(3)}, "sink has dtype float64"),
        ({"sink": np.array([0, np.nan, 1], F32)}, r"sink\[1\] is NaN.*-inf"),
        ({"scale": 0.0}, "scale=0.0 must be positive"),
        ({"scale": "x"}, "scale='x' is not a number"),
        ({"kv_scale": 0.5}, "kv_scale=0.5: rows=bf16 holds the numbers themselves"),
        ({"q_scale": 0.5}, "q_scale=0.5: bf16 queries are the numbers themselves"),
        ({"kv_scales": np.ones(32, F32)}, "kv_scales are given, but rows=bf16"),
    ],
)  # fmt: skip
def test_what_does_not_fit_prefill_is_refused(change, words):
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        replace(prefill(), **change)


@pytest.mark.parametrize("rows", ["e4m3_row", "e4m3_block64", "rope_aware"])
def test_scales_beside_the_cache(rows):
    call = prefill(rows)
    with pytest.raises(ConfigError, match=f"kv_scales are missing: rows={rows}"):
        replace(call, kv_scales=None)
    with pytest.raises(ConfigError, match=r"kv_scales has shape \(31,"):
        replace(call, kv_scales=call.kv_scales[:31])
    with pytest.raises(ConfigError, match="kv_scales has dtype float64"):
        replace(call, kv_scales=call.kv_scales.astype(float))
    with pytest.raises(ConfigError, match=f"kv_scale=2.0: rows={rows} has scales of its own"):
        replace(call, kv_scale=2.0)
    for wrong in (np.nan, np.inf, -0.5):
        scales, row = call.kv_scales.copy(), int(call.indices[1, 4])
        scales[row] = wrong
        with pytest.raises(ConfigError, match=f"row {row} of cache has the scale {wrong}"):
            replace(call, kv_scales=scales)


def test_scales_in_a_row_s_bytes():
    call = prefill("v32")
    cache, row = call.cache.copy(), int(call.indices[0, 0])
    cache[0, row, 516:520] = np.array([np.nan], F32).view(cache.dtype)
    with pytest.raises(ConfigError, match=f"row {row} of cache has the scale nan"):
        replace(call, cache=cache)
    other = next(r for r in range(32) if r not in call.indices)
    cache = call.cache.copy()
    cache[0, other] = np.nan
    assert replace(call, cache=cache).pool.rows == 32  # nobody names it


def test_a_model1_page_leaves_no_room_between_rows_and_is_rounded():
    row = FORMATS["model1"]
    good = empty_pool(row, 512, pages=2, page_size=3)
    assert good.cache.strides == (2304, 584, 1)
    memory = np.zeros((2, 3 * 600), np.uint8).view(good.cache.dtype)
    with pytest.raises(
        ConfigError, match=r"(?s)cache has strides.*row stride of 584 bytes, a page"
    ):
        Pool(row, 512, memory.reshape(2, 3, 600)[:, :, :584], None)
    tight = np.zeros((2, 3, 584), good.cache.dtype)
    with pytest.raises(ConfigError, match=r"page stride of 2304 bytes"):
        Pool(row, 512, tight, None)


@pytest.mark.parametrize(
    "fields, change, words",
    [
        ({}, {"indices": np.zeros((3, 1, 9), I32)}, "indices has shape"),
        ({"shared_list": True}, {"indices": np.zeros((3, 2, 9), I32)}, "indices has shape"),
        ({}, {"topk_length": np.zeros((3, 2), I32)}, "topk_length has shape"),
        ({"causal": True}, {"positions": None}, "positions is missing: .*causal=true"),
        ({"causal": True}, {"first_position": None}, "first_position is missing"),
        ({"causal": True}, {"positions": np.zeros((3, 2, 8), I32)}, "positions has shape"),
        ({"causal": True}, {"first_position": np.zeros(2, I32)}, "first_position has shape"),
        ({}, {"positions": np.zeros((3, 2, 9), I32)}, "positions is given, .*causal=false"),
        ({"extra": True}, {"extra_indices": None}, "extra_indices is missing: .*extra=true"),
        ({"extra": True}, {"extra_cache": None}, "extra_cache is missing"),
        ({"extra": True}, {"extra_indices": np.zeros((3, 2, 0), I32)}, "extra_indices has shape"),
        ({"extra": True}, {"extra_topk_length": np.zeros(4, I32)}, "extra_topk_length has shape"),
        ({"extra": True}, {"extra_cache": np.zeros((1, 8, 512), BF16)}, "extra_cache has shape"),
        ({}, {"extra_topk_length": np.zeros(3, I32)}, "extra_topk_length is given, .*extra=false"),
        ({"extra": True, "rows": "e4m3_row"}, {"extra_kv_scales": None}, "extra_kv_scales are mis"),
    ],
)
def test_what_does_not_fit_decode_is_refused(fields, change, words):
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        replace(decode_call(**fields), **change)


@pytest.mark.parametrize(
    "sizes, words",
    [
        ({"topk": 0}, "topk=0 must be at least 1"),
        ({"rows": 0}, "at least one query row"),
        ({"cache_rows": 0}, "cache_rows=0 must be at least 1"),
        ({"page_size": 5}, "page_size=5, room=0 do not fit cache_rows=512"),
        ({"room": 8}, "room=8"),
        ({"pattern": "all"}, "unknown pattern 'all'.*distinct"),
        ({"data": "nice"}, "unknown data 'nice'.*peaked"),
        ({"pages": 4}, "no number 'pages'"),
    ],
)
def test_made_up_calls_refuse_what_there_is_not(sizes, words):
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        mla_sparse_prefill_inputs(MlaSparsePrefillConfig(2), **sizes)


def test_made_up_calls_are_the_same_again():
    one, two = decode_call(causal=True, extra=True), decode_call(causal=True, extra=True)
    for name in ("q", "cache", "indices", "positions", "extra_cache", "extra_indices"):
        np.testing.assert_array_equal(
            getattr(one, name).view(np.uint8), getattr(two, name).view(np.uint8)
        )


def test_a_build_of_a_problem_loads_no_numpy():
    code = (
        "import sys; from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig;"
        "MlaSparseDecodeConfig(8); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
