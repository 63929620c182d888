"""Calls of MLA prefill: what fits together, what is refused, and the made-up data."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.made_up import NO_PAGE
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.made_up import MLA_PREFILL_KINDS, mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2

E4M3 = ml_dtypes.float8_e4m3fn
FORMS = ("k_and_v", "nope_rope", "latent")
PAGED = {"ragged": True, "page_size": 16}
SHAPE = {"lengths": [40, 0, 3], "num_keys": [50, 7, 0], "start_pos": [10, 0, 5]}


def made(form="k_and_v", dtype="fp8_e4m3", fields=PAGED, shape=SHAPE, **options):
    config = MlaConfigV2(4, 2, kv_form=form, dtype=dtype, lse=True, **fields)
    return mla_prefill_inputs(config, **shape, **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({}, {"batch": 2, "seq_len": 5, "num_keys": 9}),
        ({"ragged": True}, SHAPE),
        ({"page_size": 1}, {"batch": 3, "seq_len": 4, "num_keys": [5, 0, 2]}),
        (PAGED, SHAPE),
    ],
)
def test_every_form(form, dtype, fields, shape):
    inputs = made(form, dtype, fields, shape)
    leading = inputs.k.ndim - 2
    assert inputs.k.shape[leading:] == (2, {"k_and_v": 192, "nope_rope": 128, "latent": 576}[form])
    assert (inputs.v is None) == (form == "latent")
    assert (inputs.k_rope is None) == (form != "nope_rope")
    for sequence in inputs.sequences:
        k, v = inputs.key_rows(sequence, 1)
        assert k.shape == (sequence.keys, 192) and v.shape == (sequence.keys, 128)
        assert np.isfinite(k.astype(float)).all() and np.isfinite(v.astype(float)).all()


def test_forms_of_the_same_rows_have_the_same_keys():
    """A page walk by hand, and the rotary part that all heads share."""
    inputs = made("nope_rope")
    sequence = inputs.sequences[0]
    for head in range(2):
        k, v = inputs.key_rows(sequence, head)
        for j in (0, 15, 16, 49):
            page, row = inputs.page_table[0, j // 16], j % 16
            np.testing.assert_array_equal(k[j, :128], inputs.k[page, row, head])
            np.testing.assert_array_equal(k[j, 128:], inputs.k_rope[page, row])
            np.testing.assert_array_equal(v[j], inputs.v[page, row, head])
    latent = made("latent")
    k, v = latent.key_rows(latent.sequences[0], 0)
    np.testing.assert_array_equal(k[:, :128], v)
    page = latent.page_table[0, 0]
    np.testing.assert_array_equal(k[3, 128:], latent.k[page, 3, 0, 512:])


def test_what_is_no_key_is_nan():
    inputs = made("latent")
    assert (inputs.page_table == NO_PAGE).any()
    used = {
        int(p)
        for b, s in enumerate(inputs.sequences)
        for p in inputs.page_table[b, : -(-s.keys // 16)]
    }
    unused = [page for page in range(len(inputs.k)) if page not in used]
    assert unused and np.isnan(inputs.k[unused].astype(float)).all()
    assert np.isnan(inputs.k[..., 128:512].astype(float)).all()


def test_scales_give_the_numbers_back():
    fine = made(dtype="bf16", data="randn")
    coarse = made(data="randn", quantise=True)
    for name, scale in (("q", coarse.q_scale), ("k", coarse.k_scale), ("v", coarse.v_scale)):
        want, got = (getattr(i, name).astype(float) for i in (fine, coarse))
        there = np.isfinite(want)
        assert np.abs(got[there]).max() == 448
        # Half a step of e4m3 and half one of bf16; below its normal range half of 2^-9.
        room = np.maximum(2**-4 * np.abs(want), 2**-10 * scale) + 2**-8 * np.abs(want)
        assert (np.abs(got * scale - want)[there] <= room[there]).all()
    latent = made("latent", quantise=True)
    assert latent.v_scale == latent.k_scale
    assert coarse.score_scale == coarse.scale * coarse.q_scale * coarse.k_scale


def test_scales_are_fp32():
    inputs = replace(made(), k_scale=0.1)
    assert inputs.k_scale == float(np.float32(0.1)) != 0.1


@pytest.mark.parametrize("data", MLA_PREFILL_KINDS)
def test_same_arguments_same_bits(data):
    first, second, other = (made(data=data, seed=seed) for seed in (1, 1, 2))
    assert first.k.tobytes() == second.k.tobytes() != other.k.tobytes()
    assert np.isfinite(first.q.astype(float)).all()


BASE = made()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": None}, "v is missing"),
        ({"k_rope": BASE.k[..., 0, :64]}, "k_rope is given, but the kernel does not take it"),
        ({"k": BASE.k[..., :128]}, "k has shape"),
        ({"v": BASE.v[:-1]}, "but v has"),
        ({"k": BASE.k.astype(np.float32)}, "k has dtype float32"),
        ({"q": BASE.q[:, :3]}, "q has shape"),
        ({"q": BASE.q.tolist()}, "q is a list"),
        ({"q_offsets": None}, "q_offsets is missing"),
        ({"q_offsets": np.array([0, 40, 39, 43], np.int32)}, "must not fall"),
        ({"q_offsets": np.array([0, 40, 40, 42], np.int32)}, "is the number of rows of q, 43"),
        ({"q_offsets": BASE.q_offsets.astype(np.int64)}, "dtype int64"),
        ({"kv_offsets": np.array([0, 1, 2, 3], np.int32)}, "kv_offsets is given"),
        ({"kv_lengths": np.array([50, -1, 0], np.int32)}, "kv_lengths[1]=-1"),
        ({"kv_lengths": np.array([500, 7, 0], np.int32)}, "kv_lengths[0]=500"),
        ({"page_table": np.full_like(BASE.page_table, 10_000)}, "page_table[0, 0]=10000"),
        ({"page_table": BASE.page_table[:2]}, "page_table has shape"),
        ({"start_pos": np.array([0, -1, 0], np.int32)}, "start_pos[1]=-1"),
        ({"start_pos": np.array([0, 0, 2**31 - 10], np.int32)}, "positions must stay within"),
        ({"num_keys": 4}, "num_keys=4 is given"),
        ({"scale": 0.0}, "scale=0.0 must be positive"),
        ({"scale": float("inf")}, "must be positive and finite"),
        ({"q_scale": 0.0}, "q_scale=0.0 must be positive"),
        ({"k_scale": float("nan")}, "k_scale=nan"),
        ({"v_scale": 1e39}, "v_scale=1e+39"),
        ({"v_scale": "1"}, "v_scale='1' is not a number"),
        ({"q_scale": 1e-25, "k_scale": 1e-25}, "scale * q_scale * k_scale"),
    ],
)
def test_refused(change, said):
    with pytest.raises(ConfigError) as error:
        replace(BASE, **change)
    assert said in str(error.value)


def test_bf16_takes_no_scales():
    inputs = made(dtype="bf16")
    with pytest.raises(ConfigError, match="takes no scales"):
        replace(inputs, q_scale=0.5)
    with pytest.raises(ConfigError, match="unknown data"):
        made(data="nonsense")


def test_latent_rows_bring_no_v():
    inputs = made("latent")
    with pytest.raises(ConfigError, match="v is given, but the kernel does not take it"):
        replace(inputs, v=BASE.v)
    rope = made("nope_rope")
    with pytest.raises(ConfigError, match="k_rope has shape"):
        replace(rope, k_rope=rope.k_rope[..., :32])
    assert isinstance(rope, MlaPrefillInputs)
