"""Rounding in fp64 against the formats' own casts."""

import ml_dtypes
import numpy as np
import pytest

from mlagen.problem import formats

BF16 = ml_dtypes.bfloat16


def test_round_bf16_is_the_cast_on_fp32_numbers():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200_000) * np.exp2(rng.integers(-60, 60, 200_000))).astype(np.float32)
    assert np.array_equal(formats.round_bf16(x.astype(float)), x.astype(BF16).astype(float))


def test_round_bf16_rounds_once():
    # Just above the middle of 1 and 1 + 2^-7: the cast by way of fp32 would fall back to 1.
    x = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, -1 - 2**-8 - 2**-40])
    assert formats.round_bf16(x).tolist() == [1 + 2**-7, 1.0, -1 - 2**-7]


def test_rounds_from_inverts_rounding():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(50_000) * np.exp2(rng.integers(-20, 20, 50_000).astype(float))
    stored = formats.round_bf16(x)
    low, high = formats.rounds_from(stored, formats.BF16_BITS)
    assert ((low <= x) & (x <= high)).all()
    inner = (high - low) * 1e-6
    assert np.array_equal(formats.round_bf16(low + inner), stored)
    assert np.array_equal(formats.round_bf16(high - inner), stored)
    assert not np.array_equal(formats.round_bf16(low - inner), stored)
    assert (formats.round_bf16(low - inner) != stored).all()
    assert (formats.round_bf16(high + inner) != stored).all()


def test_rounds_from_zero_and_nan():
    low, high = formats.rounds_from(np.array([0.0, -0.0, np.nan]), formats.BF16_BITS)
    assert low[:2].tolist() == [-(2.0**-126)] * 2
    assert high[:2].tolist() == [2.0**-126] * 2
    assert np.isnan(low[2]) and np.isnan(high[2])


@pytest.mark.parametrize("count", [1, 17, 64, 512])
def test_accumulated_holds_for_sums_in_any_order(count):
    rng = np.random.default_rng(count)
    factor = formats.confidence(1000)
    for _ in range(200):
        x = rng.standard_normal(count).astype(np.float32)
        total = np.float32(0)
        for value in rng.permutation(x):
            total += value
        exact = x.astype(float).sum()
        assert abs(float(total) - exact) <= formats.accumulated(count, factor) * np.abs(x).sum()


def test_confidence_is_hoeffdings():
    # 2 exp(-t² / 2) = the failure probability of one of 1000 elements
    t = formats.confidence(1000)
    assert 2 * np.exp(-t * t / 2) * 1000 == pytest.approx(formats.FAILURE_PROBABILITY)


def test_e4m3_rounding_is_the_nearest_code_ties_to_even():
    codes = np.arange(128, dtype=np.uint8)
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(float)[:127]  # the last is NaN
    between = (values[1:] + values[:-1]) / 2
    even = np.where(codes[1:127] % 2 == 0, values[1:], values[:-1])
    for sign in (1.0, -1.0):
        np.testing.assert_array_equal(formats.round_e4m3(sign * values), sign * values)
        np.testing.assert_array_equal(formats.round_e4m3(sign * between), sign * even)
        above, below = between * (1 + 1e-12), between * (1 - 1e-12)
        np.testing.assert_array_equal(formats.round_e4m3(sign * above), sign * values[1:])
        np.testing.assert_array_equal(formats.round_e4m3(sign * below), sign * values[:-1])
    assert values[-1] == formats.E4M3_MAX
    assert formats.round_e4m3(np.array([464.0])) == 448.0  # a tie of 448 and what would be 480
    assert np.isnan(formats.round_e4m3(np.array([464.1, -1e9, np.nan]))).all()
