"""Inputs: what is refused, and the statistics of the data that is made."""

import math

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.made_up import STEP
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2

BF16 = ml_dtypes.bfloat16
CONFIG = MhaConfigV2(4, 2)


def zeros(*shape, dtype=BF16):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q": zeros(1, 8, 4, 128, dtype=np.float32)}, ["q has dtype float32", "bf16"]),
        ({"q": zeros(1, 8, 3, 128)}, ["q has shape (1, 8, 3, 128)", "(*, *, 4, 128)"]),
        ({"q": zeros(8, 4, 128)}, ["q has shape (8, 4, 128)"]),
        ({"q": [[1.0]]}, ["q is a list"]),
        ({"q": zeros(1, 0, 4, 128)}, ["q has shape (1, 0, 4, 128)", "at least 1"]),
        ({"k": zeros(2, 16, 2, 128)}, ["k has shape (2, 16, 2, 128)", "(1, *, 2, 128)"]),
        ({"v": zeros(1, 15, 2, 128)}, ["k has shape (1, 16, 2, 128)", "v has (1, 15, 2, 128)"]),
        ({"scale": 0.0}, ["scale=0.0", "positive"]),
        ({"scale": math.nan}, ["scale=nan"]),
        ({"scale": math.inf}, ["scale=inf"]),
        ({"start_pos": -1}, ["start_pos=-1"]),
        ({"start_pos": 2**31 - 100}, ["2147483647"]),
        ({"num_keys": 17}, ["num_keys=17", "0 .. 16"]),
        ({"num_keys": -1}, ["num_keys=-1"]),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    good = {"q": zeros(1, 8, 4, 128), "k": zeros(1, 16, 2, 128), "v": zeros(1, 16, 2, 128)}
    with pytest.raises(ConfigError) as caught:
        MhaInputs(CONFIG, **{**good, "scale": 0.1, **change})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"batch": 0}, "batch=0"),
        ({"seq_len": -5}, "seq_len=-5"),
        ({"num_keys": -1}, "num_keys=-1"),
        ({"start_pos": -64}, "start_pos=-64"),
        ({"data": "zeros"}, "unknown data 'zeros'"),
        ({"scale": -1.0}, "scale=-1.0"),
        ({"scale": 0.0}, "scale=0.0"),
    ],
)
def test_bad_requests_for_data_are_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        mha_inputs(CONFIG, **{"seq_len": 8, **change})


@pytest.mark.parametrize("data", KINDS)
def test_data_is_deterministic_finite_and_of_the_shape(data):
    def make(seed):
        return mha_inputs(
            CONFIG, batch=2, seq_len=20, num_keys=90, start_pos=64, data=data, seed=seed
        )

    first, again, other = make(3), make(3), make(4)
    assert first.q.shape == (2, 20, 4, 128)
    assert first.k.shape == first.v.shape == (2, 90, 2, 128)
    for name in ("q", "k", "v"):
        array = getattr(first, name)
        assert array.dtype == BF16 and array.flags.c_contiguous
        assert np.isfinite(array.astype(np.float32)).all()
        assert np.array_equal(array, getattr(again, name))
        assert not np.array_equal(array, getattr(other, name))


def scores(inputs):
    """[heads, rows, keys], log2 units, of the first batch entry; nothing is hidden."""
    kv = [inputs.config.kv_head_of(h) for h in range(inputs.config.num_heads)]
    q = inputs.q[0].astype(np.float64)
    k = inputs.k[0].astype(np.float64)[:, kv]
    return np.einsum("shd,nhd->hsn", q, k) * inputs.scale * math.log2(math.e)


def test_realistic_data_has_outliers_sinks_and_tails():
    inputs = mha_inputs(MhaConfigV2(8, 2), seq_len=600)
    k = inputs.k[0].astype(np.float64)
    offsets = np.abs(k.mean(axis=0))  # [kv heads, depth]
    spread = np.median(k.std(axis=0))
    assert ((offsets > 3 * spread).sum(axis=1) == 4).all()
    # A sink draws a good part of the attention of most rows, and has little V.
    s = scores(inputs)
    weights = np.exp2(s - s.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    assert 0.05 < np.median(weights[:, :, [0, 509]].sum(axis=2)) < 0.95
    v = inputs.v[0].astype(np.float64)
    assert np.abs(v[0]).mean() < np.abs(v[1:500]).mean() / 10
    normal = v[1:500] / v[1:500].std(axis=0)
    assert (normal**4).mean() > 4  # 3 is a normal distribution's


def test_late_max_jumps_late_and_falling_never_does():
    late = mha_inputs(CONFIG, seq_len=512, data="late_max")
    growth = np.diff(np.maximum.accumulate(_tile_maxima(late), axis=2), axis=2)
    jumps = growth > 8
    assert (jumps.sum(axis=2) >= 2).all()
    assert jumps[:, :, growth.shape[2] // 2 :].any(axis=2).all()

    falling = mha_inputs(CONFIG, seq_len=512, data="falling")
    maxima = _tile_maxima(falling)
    assert (np.diff(np.maximum.accumulate(maxima, axis=2), axis=2) <= 8).all()
    assert (maxima[:, :, -1] < maxima[:, :, 0] - 2 * STEP).all()


def _tile_maxima(inputs):
    s = scores(inputs)
    return s.reshape(*s.shape[:2], -1, 64).max(axis=3)
