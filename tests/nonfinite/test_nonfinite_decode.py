"""What docs/nonfinite.md promises of MLA decode: a NaN reaches query rows of its sequence alone,
and only where one of them sees its key."""

from dataclasses import replace

import numpy as np
import pytest
from planted import NAN, bits_of, built, made, outputs, reached

KERNELS = {
    "gfx950": "mla_decode_gfx950",
    "sm_90a": "mla_decode_sm90",
    "sm_100a": "mla_decode_sm100",
}
STORED = {
    "bf16": {},
    "e4m3": {"cache_dtype": "fp8_e4m3"},
    "rope_aware": {"cache_dtype": "fp8_rope_aware"},
    "products": {"cache_dtype": "fp8_e4m3", "dtype": "fp8_e4m3", "compute": "fp8"},
}
MASKS = ("causal", "sliding_window_causal[70]", "chunked_causal[100]")
# Rows of e4m3 that become bf16 on NVIDIA have no NaN: it is read as 480.
READ_AS_480 = {("sm_90a", "e4m3", 40), ("sm_90a", "rope_aware", 40),
               ("sm_100a", "e4m3", 4), ("sm_100a", "e4m3", 40),
               ("sm_100a", "rope_aware", 4), ("sm_100a", "rope_aware", 40)}  # fmt: skip
FORMS = [
    (target, stored, heads, mask, page)
    for target in KERNELS for stored in STORED for heads in (4, 40) for mask in MASKS
    for page in (1, 64)
    if not (target == "sm_90a" and mask.startswith("chunked"))  # it has none
    and not (target == "sm_90a" and (stored, heads, page) == ("products", 40, 1))
]  # fmt: skip
LENGTHS = (200, 90)


def call(target, stored, heads, mask, page):
    fields = {"num_heads": heads, "q_len": 4 if heads < 16 else 2, "page_size": page, "mask": mask}
    artifact = built(KERNELS[target], tuple((fields | STORED[stored]).items()))
    return artifact, made(artifact, lengths=LENGTHS)


def with_nan(divided, key, part):
    """The call with a NaN in key `key` of the first sequence: in a latent or a rotary column, or as
    the row's scale."""
    inputs = divided.inputs
    page, row = divmod(key, inputs.config.page_size)
    at = int(inputs.block_table[0, page]), row
    if part == "scale":
        scales = inputs.kv_scales.copy()
        scales[at] = np.nan
        return replace(divided, inputs=replace(inputs, kv_scales=scales))
    cache, bits = bits_of(inputs.cache)
    column = 77 if part == "latent" else inputs.config.d_v
    bits[(*at, slice(None), column)] = NAN[cache.dtype.itemsize]
    if part == "rotary" and inputs.config.rope_aware:  # these are bf16, low byte first
        bits[(*at, slice(None), slice(column, column + 2))] = 0xFF, 0x7F
    return replace(divided, inputs=replace(inputs, cache=cache))


def seen(config, key):
    """Which tokens of the first sequence see a key."""
    return [key in keys for keys in config.visible(LENGTHS[0])]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_a_nan_reaches_its_own_sequence_and_only_where_its_key_is_seen(form):
    target, stored, heads, mask, _ = form
    artifact, divided = call(*form)
    config = divided.inputs.config
    clean = outputs(artifact, divided)
    first = min(keys.start for keys in config.visible(LENGTHS[0]))
    parts = ("latent", "rotary", "scale") if config.rope_aware else ("latent", "rotary")
    for part in parts:
        if first:
            hidden = reached(clean, outputs(artifact, with_nan(divided, first - 1, part)))
            assert not hidden.any(), part
        key = first if first and not mask.startswith("chunked") else LENGTHS[0] - 1
        tokens = seen(config, key)
        assert any(tokens) and not all(tokens)
        got = outputs(artifact, with_nan(divided, key, part))
        touched = reached(clean, got)
        assert not touched[1].any(), part
        if (
            part != "scale"
            and (target, stored, heads) in READ_AS_480
            and (part == "latent" or stored == "e4m3")
        ):
            assert np.isfinite(got["o"]).all()
            continue
        assert touched[0][tokens].all(), part
        assert np.isnan(got["o"][0][tokens]).any(axis=-1).all()
        others = np.isnan(got["o"][0][np.logical_not(tokens)]).any()
        # No row is reached by a rotary column that it does not see: those are no values.
        if part == "rotary":
            assert not touched[0][np.logical_not(tokens)].any()
        elif stored != "rope_aware" and heads == 4:
            assert others, "sharper than the page says"


@pytest.mark.parametrize("target", KERNELS)
@pytest.mark.parametrize("heads", [4, 40])
def test_a_nan_in_a_query_row_reaches_that_row(target, heads):
    artifact, divided = call(target, "bf16", heads, "causal", 64)
    clean = outputs(artifact, divided)
    q, bits = bits_of(divided.inputs.q)
    bits[0, 1, 2, 500] = NAN[2]
    other = outputs(artifact, replace(divided, inputs=replace(divided.inputs, q=q)))
    touched = reached(clean, other)
    assert touched[0, 1, 2] and touched.sum() == 1
