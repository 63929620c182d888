"""MLA decode with q and rows stored in e4m3, and with rope-aware rows: what scales do, that both
oracles' bounds hold and are sharp."""

from dataclasses import replace
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from mla_decode_simulation import simulate

from mlagen.attention.latent.rope_aware import rope_aware_rows
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare

ORACLES = (exact, rounded)
LENGTHS = (300, 64, 0, 1, 129)
E4M3 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}
ROWS = {"cache_dtype": "fp8_rope_aware"}
BOTH = {"dtype": "fp8_rope_aware", **ROWS}


@lru_cache
def demo(data, *, page_size=64, **fields):
    config = MlaDecodeConfig(8, page_size=page_size, **(fields or E4M3))
    return mla_decode_inputs(config, lengths=LENGTHS, data=data)


def found(inputs, output, lse):
    """(comparison of O, of the LSE) with each oracle."""
    for oracle in ORACLES:
        yield comparison_with(oracle, inputs, output, lse)


@pytest.mark.parametrize(
    "fields",
    [E4M3, ROWS, {**ROWS, "page_size": 1, "q_len": 2}, BOTH, {**BOTH, "q_len": 3}],
    ids=str,
)
@pytest.mark.parametrize("data", ["realistic", "randn", "late_max"])
def test_an_honest_kernel_is_within_both_bounds(data, fields):
    inputs = demo(data, **fields)
    for pair in found(inputs, *simulate(inputs)):
        assert all(one.passed for one in pair), [one.worst for one in pair]


@pytest.mark.parametrize("fault", ["dropped key", "swapped keys", "stale rescale"])
def test_a_fault_is_not(fault):
    inputs = demo("randn")
    for of_output, _ in found(inputs, *simulate(inputs, fault=fault)):
        assert of_output.max_ratio > 2


@pytest.mark.parametrize("data", ["realistic", "randn"])
@pytest.mark.parametrize(
    "fault", ["dropped key", "swapped keys", "stale rescale", "P without row scales"]
)
def test_a_fault_of_rope_aware_rows_is_not(data, fault):
    inputs = demo(data, **ROWS)
    for of_output, _ in found(inputs, *simulate(inputs, fault=fault)):
        assert of_output.max_ratio > 2


def test_one_row_scale_off_by_one_percent_is_not():
    """Of the key that the first head weighs most, in the sharper oracle."""
    inputs = demo("realistic", **ROWS)
    keys = inputs.rows(0) * inputs.row_scales(0)[:, None]
    key = int(np.argmax(keys @ inputs.q[0, 0, 0].astype(float)))
    off = inputs.kv_scales.copy()
    off[inputs.block_table[0, key // 64], key % 64] *= np.float32(1.01)
    output, lse = simulate(replace(inputs, kv_scales=off))
    of_output, of_lse = comparison_with(rounded, inputs, output, lse)
    assert of_output.max_ratio > 8 and of_lse.max_ratio > 8


def test_one_token_s_scale_off_by_one_percent_is_not():
    inputs = demo("realistic", **BOTH)
    wrong = simulate(replace(inputs, q_scales=np.float32(1.01) * inputs.q_scales))
    for of_output, of_lse in found(inputs, *wrong):
        assert of_output.max_ratio > 2 and of_lse.max_ratio > 2


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -1.0])
def test_a_query_scale_that_is_none_has_no_expected_value(wrong):
    inputs = demo("randn", **BOTH)
    scales = inputs.q_scales.copy()
    scales[3, 0] = wrong
    for oracle in ORACLES:
        with pytest.raises(ConfigError, match="q_scales of sequence 3"):
            oracle(replace(inputs, q_scales=scales))


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("fields", [ROWS, BOTH], ids=str)
def test_rope_aware_rows_are_the_numbers_that_they_stand_for(fields, page_size):
    inputs = demo("realistic", **fields, page_size=page_size)
    result = exact(inputs)
    for sequence, length in enumerate(LENGTHS):
        rows = inputs.rows(sequence) * inputs.row_scales(sequence)[:, None]
        assert rows.shape == (length, 576)
        if not length:
            continue
        q = inputs.queries(sequence)[0]
        if inputs.q_scales is not None:
            q = q * inputs.q_scales[sequence, 0].astype(float)
        z = inputs.scale * q @ rows.T
        p = np.exp(z - z.max(axis=1, keepdims=True))
        expected = p @ rows[:, :512] / p.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result.output.values[sequence, 0], expected, rtol=1e-8,
                                   atol=1e-10)  # fmt: skip
        lse = z.max(axis=1) + np.log(p.sum(axis=1))
        np.testing.assert_allclose(result.lse.values[sequence, 0, :, 0], lse, rtol=1e-9)


def test_made_up_rope_aware_rows_are_near_the_ones_in_bf16():
    rows = np.random.default_rng(0).standard_normal((50, 576))
    rows[7, :512] = 0
    stored, scales = rope_aware_rows(rows, 512)
    assert stored.shape == (50, 640) and stored.dtype == ml_dtypes.float8_e4m3fn
    unit = scales[:, None].astype(float)
    content = stored[:, :512].astype(float) * unit
    rope = stored[:, 512:].view(ml_dtypes.bfloat16).astype(float) * unit
    assert (np.abs(content - rows[:, :512]) <= 2.0**-4 * np.abs(rows[:, :512]) + unit / 512).all()
    np.testing.assert_allclose(rope, rows[:, 512:], rtol=2.0**-8)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5])
def test_a_row_scale_that_is_none_has_no_expected_value(wrong):
    inputs = demo("randn", **ROWS)
    scales = inputs.kv_scales.copy()
    scales[inputs.block_table[0, 0], 9] = wrong
    for oracle in ORACLES:
        with pytest.raises(ConfigError, match=r"row 9 of sequence 0 .* its scale .* is none"):
            oracle(replace(inputs, kv_scales=scales))


def test_row_scales_go_with_rope_aware_rows_only():
    inputs = demo("randn", **ROWS)
    with pytest.raises(ConfigError, match="kv_scales are missing: rope-aware rows"):
        replace(inputs, kv_scales=None)
    with pytest.raises(ConfigError, match=r"kv_scales has shape \(1, 64\)"):
        replace(inputs, kv_scales=inputs.kv_scales[:1])
    with pytest.raises(ConfigError, match=r"kv_scale=2\.0: rope-aware rows have a scale each"):
        replace(inputs, kv_scale=2.0)
    with pytest.raises(ConfigError, match="bf16 queries have none"):
        replace(inputs, q_scales=np.ones((5, 1), np.float32))
    with pytest.raises(ConfigError, match="q_scales are missing"):
        replace(demo("randn", **BOTH), q_scales=None)
    with pytest.raises(ConfigError, match="rows of a fp8_e4m3 cache have none"):
        replace(demo("randn"), kv_scales=np.ones((1, 64), np.float32))
    narrow = inputs.cache[..., :576]
    with pytest.raises(ConfigError, match=r"cache has shape .*, 576\).*640"):
        replace(inputs, cache=np.ascontiguousarray(narrow))


def comparison_with(oracle, inputs, output, lse):
    expected = oracle(inputs)
    return compare(expected.output, output), compare_lse(expected.lse, lse)


@pytest.mark.parametrize("name", ["q_scale", "kv_scale"])
def test_a_scale_off_by_one_percent_is_not(name):
    inputs = demo("realistic")
    wrong = simulate(replace(inputs, **{name: 1.01 * getattr(inputs, name)}))
    for of_output, of_lse in found(inputs, *wrong):
        assert of_output.max_ratio > 2 and of_lse.max_ratio > 2


def test_scales_are_those_of_the_numbers():
    """The same numbers in bf16, which holds every multiple of these scales."""
    inputs = demo("realistic")
    bf16 = replace(inputs.config, dtype="bf16", cache_dtype="bf16")
    plain = MlaDecodeInputs(
        bf16,
        (inputs.q.astype(np.float32) * inputs.q_scale).astype(ml_dtypes.bfloat16),
        (inputs.cache.astype(np.float32) * inputs.kv_scale).astype(ml_dtypes.bfloat16),
        inputs.block_table, inputs.cache_lengths, inputs.scale,
    )  # fmt: skip
    one, other = exact(inputs), exact(plain)
    np.testing.assert_allclose(one.output.values, other.output.values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.lse.values, other.lse.values, rtol=1e-12)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q_scale": 0.0}, "q_scale=0.0 must be positive"),
        ({"q_scale": "x"}, "q_scale='x' is not a number"),
        ({"kv_scale": float("inf")}, "kv_scale=inf must be positive and finite"),
        ({"q_scale": 1e30, "kv_scale": 1e30}, "scale=.* must be positive and finite"),
    ],
)
def test_a_scale_that_is_none_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        replace(demo("randn"), **change)


def test_queries_of_another_type_are_refused():
    inputs = demo("randn")
    with pytest.raises(ConfigError, match="q has dtype float8_e4m3fn"):
        replace(inputs, config=replace(inputs.config, dtype="bf16"), q_scale=1.0)
