"""`mlagen.build`: the one call of the library."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mlagen
from mlagen.errors import ConfigError, MissingError


def test_build_returns_a_kernel_that_takes_arrays() -> None:
    kernel = mlagen.build("mha_prefill_v2", num_heads=2, num_kv_heads=1, depth=128, mask="causal")
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, 33, heads, 128)).astype(ml_dtypes.bfloat16) for heads in (2, 1, 1)
    )
    out = kernel(q, k, v)
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    # Causal: the first query sees the first key only.
    np.testing.assert_array_equal(out[0, 0, 1], v[0, 0, 0])
    assert np.isfinite(out.astype(np.float32)).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "mha_prefill_v9"}, ConfigError, "mha_prefill_v9"),
        ({"kernel": "nowhere/mine.py"}, MissingError, "mine.py"),
        ({"nun_heads": 4}, ConfigError, "nun_heads"),
        ({"knobs": {"prioritee": 1}}, ConfigError, "has no knob 'prioritee'"),
        ({"target": "gfx90a"}, ConfigError, "unknown target 'gfx90a'"),
        ({"num_kv_heads": 3}, ConfigError, "multiple"),
        ({"depth": 96}, ConfigError, "depth=96"),
        ({"templates": "/nowhere"}, MissingError, "no template folder"),
    ],
)
def test_what_it_cannot_build_is_refused_by_name(
    arguments: dict, error: type[Exception], message: str
) -> None:
    given = {"kernel": "mha_prefill_v2", "num_heads": 2, "num_kv_heads": 1, **arguments}
    with pytest.raises(error, match=message):
        mlagen.build(**given)
