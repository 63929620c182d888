"""Scales of rows that are powers of two, at the ends of ue8m0: all ones are NaN, and zeros are
2^-127, no normal number of fp32."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from planted import bits_of, built, made, outputs, reached

SCALES_AT, NAN, LARGEST = 512, 0xFF, 0x7E
FORMS = [(target, heads) for target in ("gfx950", "sm90", "sm100") for heads in (8, 72)]
FORMS += [("sm90", 24), ("sm90", 40)]


def call(target, heads):
    fields = {"num_heads": heads, "rows": "v41", "d_qk": 512, "q_len": 2}
    artifact = built(f"mla_sparse_decode_{target}", tuple(fields.items()))
    shape = {"topk": 70, "cache_rows": 144, "page_size": 72, "pattern": "invalid", "batch": 1}
    return artifact, made(artifact, **shape)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("scale", [0, 7, 15])
def test_a_scale_of_all_ones_makes_its_row_nan(form, scale):
    artifact, split = call(*form)
    seen = [set(map(int, split.inputs.parts(0, token)[0].read)) for token in range(2)]
    row = min(seen[0] - seen[1])
    cache, bits = bits_of(split.inputs.cache)
    bits[(*divmod(row, cache.shape[1]), SCALES_AT + scale)] = NAN
    inputs = copy(split.inputs)  # made anew they would be refused
    vars(inputs).pop("pool")
    vars(inputs)["cache"] = cache
    got = outputs(artifact, replace(split, inputs=inputs))
    assert np.isnan(got["o"][0, 0].astype(np.float32)).all()
    assert not reached(outputs(artifact, split), got)[0, 1].any()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_the_least_scale_is_no_zero(form):
    """All numbers are 448 * 2^-127: O is, too, but for roundings of P."""
    artifact, split = call(*form)
    cache, bits = bits_of(split.inputs.cache)
    bits[..., :SCALES_AT], bits[..., SCALES_AT:] = LARGEST, 0
    inputs = replace(split.inputs, cache=cache, sink=None)
    got = outputs(artifact, replace(split, inputs=inputs))
    np.testing.assert_allclose(got["o"].astype(np.float64), 448 * 2.0**-127, rtol=2.0**-7)
