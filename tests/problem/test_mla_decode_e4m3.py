"""Both oracles of MLA decode over products of e4m3: sums that are cut as Hopper cuts them, an
honest kernel within the bounds, and each fault outside of those that can show it."""

from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from mla_decode_e4m3_simulation import FAULTS, product, simulate

from mlagen.attention.latent.cut_sums import cut_products
from mlagen.attention.latent.made_up import LATENT_KINDS
from mlagen.attention.latent.order import HOPPER_E4M3
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare

ORACLES = (exact, rounded)
E4M3 = ml_dtypes.float8_e4m3fn
FP8 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}


@lru_cache
def demo(data, lengths=(300, 640, 1, 65), **fields):
    inputs = mla_decode_inputs(MlaDecodeConfig(8, **FP8, **fields), lengths=lengths, data=data)
    return inputs, [oracle(inputs, order=HOPPER_E4M3) for oracle in ORACLES]


def comparisons(expected, output, lse):
    return compare(expected.output, output), compare_lse(expected.lse, lse)


@pytest.mark.parametrize("octaves", [0, 7, 14])
def test_sums_are_cut_as_the_model_of_the_tensor_core_cuts_them(octaves):
    """Denormal numbers and zeros among them, and sums that nearly cancel."""
    rng = np.random.default_rng(3)
    a, b = (
        np.clip(
            rng.standard_normal((n, 576)) * np.exp2(rng.uniform(-octaves, 7, (n, 576))), -448, 448
        )
        for n in (40, 130)
    )
    a[:, 300] = 0
    a[1], b[:, 64:128] = -a[0], b[:, :64]
    a[:, 64:128] = -a[:, :64]
    a, b = a.astype(E4M3), b.astype(E4M3)
    wanted = product(np.zeros((40, 130), np.float32), a, b)
    found = cut_products(a.astype(float), b.astype(float), 32, 13)
    assert np.array_equal(found.astype(np.float32), wanted)
    assert not np.array_equal(cut_products(a.astype(float), b.astype(float), 32, 12), found)
    assert not np.array_equal(cut_products(a.astype(float), b.astype(float), 16, 13), found)


@pytest.mark.parametrize("fields", [{}, {"q_len": 3}, {"mask": "sliding_window_causal[70]"}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("data", LATENT_KINDS)
def test_an_honest_kernel_is_within_both_bounds(data, fields):
    inputs, both = demo(data, (300, 0, 1, 65, 2), **fields)
    found = simulate(inputs)
    for expected in both:
        for one in comparisons(expected, *found):
            assert one.passed, (one.oracle, one.worst)


# The outputs that show a fault: by both oracles, and by the one that rounds.
SHOWS = {
    "dropped key": (("lse",), ("o",)),
    "swapped keys": (("o",), ()),
    "scale off by 1 %": (("lse",), ("o",)),
    "stale rescale": (("o",), ()),
    "P without its bias": ((), ("o",)),
    "bias in the LSE": (("lse",), ()),
    "M that follows at once": ((), ("o",)),
    "P of bf16": ((), ("o",)),
    "sums of fp32": ((), ("o", "lse")),
    "scale of values left out": (("o",), ()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_bound_is_sharp(fault):
    by_both, by_rounding = SHOWS[fault]
    inputs, both = demo(FAULTS[fault])
    found = simulate(inputs, fault=fault)
    for expected in both:
        ratios = dict(zip(("o", "lse"), comparisons(expected, *found), strict=True))
        for output in by_both + (by_rounding if expected is both[1] else ()):
            assert ratios[output].max_ratio > 2, (output, ratios[output].max_ratio)


def test_the_oracle_that_bounds_cuts_does_not_see_them():
    """What sums in fp32 give is right by the exact oracle: it has all cuts in its bound."""
    inputs, (expected, _) = demo("randn")
    output, _ = simulate(inputs, fault="sums of fp32")
    assert compare(expected.output, output).passed


def test_a_row_whose_p_may_round_otherwise_has_a_wider_bound(monkeypatch):
    """An exp2 that is off by more changes some P, and with them all later cuts of their rows."""
    inputs, (_, sharp) = demo("randn")
    output, _ = simulate(inputs, off=2.0**-9)
    assert compare(sharp.output, output).max_ratio > 2
    for module in ("rounded", "walk"):
        monkeypatch.setattr(f"mlagen.attention.latent.{module}.EX2", 2.0**-9)
    wide = rounded(inputs, order=HOPPER_E4M3)
    assert compare(wide.output, output).passed
    some = sharp.output.values != 0
    assert np.median(wide.output.bounds[some]) > 100 * np.median(sharp.output.bounds[some])


@pytest.mark.parametrize(
    "fields",
    [
        {"compute": "fp8"},
        {"compute": "fp8", "dtype": "fp8_e4m3"},
        {"compute": "fp8", "cache_dtype": "fp8_e4m3"},
        {"compute": "fp8", "dtype": "fp8_e4m3", "cache_dtype": "fp8_rope_aware"},
        {"compute": "fp8", "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"},
    ],
    ids=str,
)
def test_other_rows_have_no_products_of_e4m3(fields):
    with pytest.raises(ConfigError, match="compute=fp8 does not go with") as refused:
        MlaDecodeConfig(8, **fields)
    assert "dtype=fp8_e4m3 and cache_dtype=fp8_e4m3" in refused.value.hint


def test_compute_is_one_of_two():
    with pytest.raises(ConfigError, match="compute=fp16") as refused:
        MlaDecodeConfig(8, compute="fp16")
    assert "bf16 or fp8" in refused.value.hint
