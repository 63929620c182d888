"""What docs/nonfinite.md promises of sparse decode with positions: a row that a token's list names,
and that its position hides from the token, reaches nothing of it, whatever the row holds."""

from dataclasses import replace

import numpy as np
import pytest
from planted import NAN, bits_of, built, made, outputs, reached

from mlagen.families.mla_sparse.pool import model1_parts
from mlagen.families.mla_sparse.rows import FORMATS

TARGETS = ("gfx950", "sm90", "sm100")
HEADS = (8, 24, 40, 72)
FORMS = [
    (target, rows, heads, extra)
    for target in TARGETS for rows in FORMATS for heads in HEADS for extra in (False, True)
]  # fmt: skip


def call(target, rows, heads, extra):
    fields = {
        "num_heads": heads, "rows": rows, "d_qk": FORMATS[rows].widths[-1], "q_len": 2,
        "causal": True, "extra": extra,
    }  # fmt: skip
    artifact = built(f"mla_sparse_decode_{target}", tuple(fields.items()))
    return artifact, made(
        artifact, topk=150, cache_rows=288, page_size=72, pattern="invalid", batch=1
    )


def hidden_rows(inputs):
    """Rows that the list of some token names, and that no token sees."""
    named = seen = frozenset()
    for token in range(2):
        part = inputs.parts(0, token)[0]
        own = part.indices[: part.places]
        named |= {int(row) for row in own if 0 <= row < part.pool.rows}
        seen |= {int(row) for row in part.read}
    return sorted(named - seen)


def poisoned(split, rows):
    """The call with NaN in all that belongs to these rows, scales too."""
    inputs = split.inputs
    form = inputs.config.row_format
    cache, bits = bits_of(inputs.cache)
    page, place = np.divmod(rows, cache.shape[1])
    if form.behind:
        bits, scales = model1_parts(bits, form.behind)
        scales[page, place] = 0xFF
    bits[page, place] = NAN[cache.dtype.itemsize]
    if inputs.kv_scales is None:
        return replace(split, inputs=replace(inputs, cache=cache))
    beside = inputs.kv_scales.copy()
    beside[rows] = np.nan
    return replace(split, inputs=replace(inputs, cache=cache, kv_scales=beside))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_a_hidden_row_reaches_nothing(form):
    artifact, split = call(*form)
    hidden = hidden_rows(split.inputs)
    assert len(hidden) > 16
    clean = outputs(artifact, split)
    assert np.isfinite(clean["o"]).all()
    assert not reached(clean, outputs(artifact, poisoned(split, np.array(hidden)))).any()
