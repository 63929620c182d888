"""mla_prefill_v2 over the product of its options: a draw, the same each time. A persistent grid's
work is divided over a few workgroups, so that tiles are split.

MLAGEN_CROSS_PRODUCT=2000 draws that many, anew each time.
"""

from __future__ import annotations

import pytest
from draws import MODES, drawing, shape_of
from hypothesis import given
from hypothesis import strategies as st
from mla_cases import built, check, keys_of

from mlagen.families.mla_prefill.problem import MlaConfigV2

MASKS = (
    "null", "causal", "sliding_window_causal[1]", "sliding_window_causal[128]",
    "sliding_window_causal[200]", "chunked_causal[1]", "chunked_causal[128]", "chunked_causal[77]",
)  # fmt: skip
HEADS = ((1, 1), (4, 1), (8, 2), (6, 3))
PAGES = (0, 0, 1, 16, 32, 64, 128, 192)
DATA = ("realistic", "randn", "late_max", "falling", "jumps", "half", "peaked", "constant")

configs = st.builds(
    lambda heads, **fields: MlaConfigV2(*heads, **fields),
    st.sampled_from(HEADS),
    mask=st.sampled_from(MASKS),
    dtype=st.sampled_from(("fp8_e4m3", "bf16")),
    kv_form=st.sampled_from(("k_and_v", "nope_rope", "latent")),
    output_dtype=st.sampled_from(("bf16", "fp32")),
    rescale_threshold=st.sampled_from((8.0, 0.0)),
    ragged=st.booleans(),
    page_size=st.sampled_from(PAGES),
    lse=st.booleans(),
)
sequences = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 300)),
        st.builds(keys_of, st.integers(1, 6), st.sampled_from((0, 1, 47, 65))),
        st.sampled_from((0, 1, 63, 127, 128, 200)),
    ),
    min_size=1,
    max_size=3,
).filter(lambda rows: any(length for length, _, _ in rows))


@drawing(2)
@pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")  # the emulator's JIT
@given(configs, sequences, st.booleans(), st.sampled_from(DATA), st.integers(0, 999))
def test_a_draw_of_the_product(config, rows, persistent, data, seed):
    lengths, keys, starts = (list(column) for column in zip(*rows, strict=True))
    shape = shape_of(config, lengths, keys, starts)
    has_items = config.ragged and str(config.mask) in ("null", "causal")
    knobs = {"grid": "persistent"} if persistent and has_items else {}
    check(built(config, **knobs), data=data, seed=seed, modes=[MODES[seed % 3]], **shape)
