"""MLA decode with q and rows stored in e4m3: what scales do, that both oracles' bounds hold and are
sharp."""

from dataclasses import replace
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from mla_decode_simulation import simulate

from mlagen.errors import ConfigError
from mlagen.problem import MlaDecodeConfig, MlaDecodeInputs, compare, compare_lse
from mlagen.problem.mla_decode_exact import exact
from mlagen.problem.mla_decode_rounded import rounded
from mlagen.testdata import mla_decode_inputs

ORACLES = (exact, rounded)
LENGTHS = (300, 64, 0, 1, 129)
E4M3 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}


@lru_cache
def demo(data, *, page_size=64, **fields):
    config = MlaDecodeConfig(8, page_size=page_size, **(fields or E4M3))
    return mla_decode_inputs(config, lengths=LENGTHS, data=data)


def found(inputs, output, lse):
    """(comparison of O, of the LSE) with each oracle."""
    for oracle in ORACLES:
        expected = oracle(inputs)
        yield compare(expected.output, output), compare_lse(expected.lse, lse)


@pytest.mark.parametrize("data", ["realistic", "randn", "late_max"])
def test_an_honest_kernel_is_within_both_bounds(data):
    inputs = demo(data)
    for pair in found(inputs, *simulate(inputs)):
        assert all(one.passed for one in pair), [one.worst for one in pair]


@pytest.mark.parametrize("fault", ["dropped key", "swapped keys", "stale rescale"])
def test_a_fault_is_not(fault):
    inputs = demo("randn")
    for of_output, _ in found(inputs, *simulate(inputs, fault=fault)):
        assert of_output.max_ratio > 2


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
