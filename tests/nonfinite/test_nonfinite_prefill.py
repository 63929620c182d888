"""What docs/nonfinite.md promises of prefill on gfx950: a NaN in a key reaches rows of workgroups
that have a row which sees the key, and no others."""

from dataclasses import replace

import numpy as np
import pytest
from planted import NAN, bits_of, built, made, outputs, reached

MASKS = ("causal", "sliding_window_causal[100]", "chunked_causal[77]")
CACHES = ({}, {"page_size": 16}, {"page_size": 128}, {"page_size": 192}, {"ragged": True},
          {"page_size": 1})  # fmt: skip
FORMS = [
    (kernel, dtype, mask, tuple(cache.items()))
    for kernel in ("mha_prefill_v2", "mla_prefill_v2") for dtype in ("bf16", "fp8_e4m3")
    for mask in MASKS for cache in CACHES
    if kernel.startswith("mla") or cache.get("page_size") != 1
]  # fmt: skip
FORMS += [
    ("mla_prefill_v2", "bf16", mask, (("kv_form", "latent"), *more))
    for mask in MASKS for more in ((), (("page_size", 16),))
]  # fmt: skip
ROWS, KEYS, START = 300, 700, 400  # two query tiles, the first of 256 rows
# The first key of either mask's first row, and one that the first tile's rows do not see.
EDGES = {MASKS[0]: (), MASKS[1]: (START - 99,), MASKS[2]: (START // 77 * 77,)}


def call(kernel, dtype, mask, cache):
    fields = {"num_heads": 1, "num_kv_heads": 1, "dtype": dtype, "mask": mask, **dict(cache)}
    artifact = built(kernel, tuple(fields.items()))
    if fields.get("ragged"):
        shape = {"lengths": [ROWS, 40], "num_keys": [KEYS, 90], "start_pos": [START, 50]}
    else:
        shape = {"batch": 1, "seq_len": ROWS, "num_keys": KEYS, "start_pos": START}
    return artifact, made(artifact, **shape)


def with_nan(inputs, name, key):
    array, bits = bits_of(getattr(inputs, name))
    if inputs.config.page_size:
        page, row = divmod(key, inputs.config.page_size)
        at = int(inputs.page_table[0, page]), row
    else:
        at = (key,) if inputs.config.ragged else (0, key)
    bits[(*at, slice(None), 5)] = NAN[array.dtype.itemsize]
    return replace(inputs, **{name: array})


def tiles_that_see(inputs, key):
    """Of the first sequence, which of its rows lie in a workgroup with a row that sees the key, and
    which see it."""
    rows = np.arange(ROWS)
    seen = np.array([key in inputs.config.mask.keys(START + row, 1, KEYS) for row in rows])
    tile = rows // inputs.config.q_tile
    return np.array([seen[tile == own].any() for own in tile]), seen


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_a_nan_reaches_workgroups_that_see_its_key(form):
    artifact, inputs = call(*form)
    clean = outputs(artifact, inputs)
    last = START + inputs.config.q_tile  # the first one that the first tile does not see
    edges = EDGES[form[2]]
    shared = 0
    for key in (*(first - 1 for first in edges), *edges, last - 1, last):
        for name in [n for n in ("v", "k") if getattr(inputs, n) is not None]:
            got = outputs(artifact, with_nan(inputs, name, key))
            touched = reached(clean, got)[0].any(axis=-1)
            block, seen = tiles_that_see(inputs, key)
            assert not touched[:ROWS][~block].any(), (name, key)
            assert not touched[ROWS:].any(), (name, key)  # another sequence
            assert np.isnan(got["o"][0, :ROWS][seen]).any(axis=-1).all(), (name, key)
            shared += np.isnan(got["o"][0, :ROWS][block & ~seen]).any()
    assert shared, "sharper than the page says"
