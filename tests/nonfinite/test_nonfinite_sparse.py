"""What docs/nonfinite.md promises of sparse MLA: a NaN in a row reaches the queries or tokens whose
lists name it, all of their heads, and no others."""

from dataclasses import replace

import numpy as np
import pytest
from planted import NAN, bits_of, built, made, outputs, reached

from mlagen.families.mla_sparse.pool import model1_parts
from mlagen.families.mla_sparse.rows import FORMATS

TARGETS = ("gfx950", "sm90", "sm100")
FORMS = [
    (f"mla_sparse_{which}_{target}", rows, heads)
    for which in ("prefill", "decode") for target in TARGETS for rows in FORMATS
    for heads in (8, 40)
]  # fmt: skip


def call(kernel, rows, heads):
    fields = {"num_heads": heads, "rows": rows, "d_qk": FORMATS[rows].widths[-1]}
    shape = {"topk": 70, "cache_rows": 144, "page_size": 72, "pattern": "invalid"}
    if "decode" in kernel:
        fields |= {"q_len": 2, "causal": True}
        shape |= {"batch": 1}
    else:
        shape |= {"rows": 2}
    artifact = built(kernel, tuple(fields.items()))
    return artifact, made(artifact, **shape)


def with_nan(split, row):
    inputs = split.inputs
    cache, bits = bits_of(inputs.cache)
    page, place = divmod(row, cache.shape[1])
    if inputs.config.row_format.behind:
        bits, _ = model1_parts(bits, inputs.config.row_format.behind)
    bits[page, place, 77] = NAN[cache.dtype.itemsize]
    return replace(split, inputs=replace(inputs, cache=cache))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_a_nan_reaches_lists_that_name_its_row(form):
    artifact, split = call(*form)
    inputs = split.inputs
    parts = [inputs.parts(0, token)[0] for token in range(2)]
    seen = [set(map(int, part.read)) for part in parts]
    alone = [min(seen[own] - seen[1 - own], default=None) for own in range(2)]
    clean = outputs(artifact, split)
    assert any(row is not None for row in alone)
    for own, row in enumerate(alone):
        if row is None:
            continue
        got = outputs(artifact, with_nan(split, row))
        touched = reached(clean, got)
        assert not touched[0, 1 - own].any(), row
        # It stays NaN in all heads, or is read as 480, which not every head feels.
        finite = np.isfinite(got["o"][0, own]).all()
        assert touched[0, own].any() if finite else np.isnan(got["o"][0, own]).any(axis=-1).all()
        assert not (finite and inputs.cache.dtype.itemsize == 2), row
