"""mha_prefill_v2 in fp8, executed: the table of mla_prefill_v2 for MHA, in every form it has.

Right by both oracles, clean under the sanitizer in all modes. Tensors are quantised with scales
that are not 1. MLAGEN_CROSS_PRODUCT=2000 draws that many of the product, anew each time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from draws import MODES, drawing, keys_of, shape_of, verified
from hypothesis import given
from hypothesis import strategies as st

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.ops import MhaKernel
from mlagen.problem.expected import compare

TILES = [(128, 64), (128, 128), (64, 64), (64, 128)]  # depth, keys
TAILS = (0, 1, 47)  # keys in the last tile; 0: it is full
KINDS = ("realistic", "randn", "late_max", "falling", "jumps")
MASKS = (
    "null", "causal", "sliding_window_causal[1]", "sliding_window_causal[64]",
    "sliding_window_causal[200]", "chunked_causal[1]", "chunked_causal[128]", "chunked_causal[77]",
)  # fmt: skip
PAGES = (0, 16, 32, 64, 128, 192)
LENGTHS, KEYS, STARTS = [300, 0, 1, 256, 33], [300, 70, 0, 129, 64], [0, 3, 5, 100, 63]


@lru_cache(maxsize=64)
def built(config, **knobs):
    return build("mha_prefill_v2", config, knobs=knobs)


def config_of(heads=(1, 1), tile=(128, 128), **fields):
    return MhaConfigV2(*heads, depth=tile[0], kv_block=tile[1], dtype="fp8_e4m3", **fields)


def check(config, knobs=(), **shape):
    return verified(built(config, **dict(knobs)), **shape)


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("tile", TILES)
def test_every_tile_count(tile, n):
    """Null: all tiles for all rows. Causal: rows end where the keys do, so the last query tile
    walks all N tiles of its keys."""
    for tail in TAILS:
        num_keys = keys_of(tile[1], n, tail)
        data = {"data": KINDS[(n + tail) % 5], "seed": n}
        check(config_of(tile=tile, mask="null"), seq_len=70, num_keys=num_keys, **data)
        rows = min(num_keys, 80)
        shape = {"seq_len": rows, "num_keys": num_keys, "start_pos": num_keys - rows}
        check(config_of(tile=tile), **shape, **data)


@pytest.mark.parametrize("mask", range(len(MASKS)))
@pytest.mark.parametrize("tile", range(len(TILES)))
def test_masks_and_sinks(tile, mask):
    """A sink in every second: each mask and each tile has both."""
    tile, mask, sink = TILES[tile], MASKS[mask], (tile + mask) % 2 == 0
    config = config_of((4, 2), tile, mask=mask, sink=sink, lse=True)
    for start_pos in (0, 100):
        check(config, seq_len=300, start_pos=start_pos, data="jumps", modes=["latest"])


@pytest.mark.parametrize("heads", [(4, 1), (8, 2), (6, 3)])
def test_heads_and_batches(heads):
    check(config_of(heads, (128, 64), output_dtype="fp32"), batch=2, seq_len=513, start_pos=20)


@pytest.mark.parametrize("mask", ["null", "causal", "sliding_window_causal[70]"])
@pytest.mark.parametrize("tile", TILES)
def test_sequences_of_all_lengths(tile, mask):
    """Empty ones, single rows, whole and partial tiles; keys of their own (cross-attention)."""
    config = config_of((4, 2), tile, mask=mask, ragged=True, sink=True, lse=True)
    check(config, lengths=LENGTHS, num_keys=KEYS, start_pos=STARTS, data="late_max")


@pytest.mark.parametrize("page_size", PAGES[1:])
@pytest.mark.parametrize("tile", TILES)
def test_pages(tile, page_size):
    """Rows past a length, pages of nobody and the table past a sequence's pages are NaN or no
    page at all. The same bits as without pages."""
    config = config_of((2, 1), tile, ragged=True, page_size=page_size, sink=True, lse=True)
    shape = {"lengths": LENGTHS, "num_keys": KEYS, "start_pos": STARTS, "data": "jumps"}
    check(config, modes=["latest"], **shape)
    paged = mha_inputs(config, quantise=True, **shape)
    plain = mha_inputs(replace(config, page_size=0), quantise=True, **shape)
    runs = [MhaKernel(built(inputs.config)).run(inputs) for inputs in (paged, plain)]
    for name in ("output", "lse"):
        one, other = (getattr(run, name).astype(np.float32) for run in runs)
        assert np.array_equal(one, other)


@pytest.mark.parametrize("threshold", [0.0, 3.0, 8.8])
def test_thresholds(threshold):
    for data in ("late_max", "jumps"):
        check(config_of(rescale_threshold=threshold), seq_len=333, data=data)


def test_scales_are_those_of_the_tensors():
    """Each scale by itself, and all at once: the same numbers divided differently. The sinks are
    in natural units and have none."""
    config = config_of((2, 1), sink=True, lse=True, output_dtype="fp32")
    plain = mha_inputs(config, seq_len=40, num_keys=200, start_pos=160)
    call = {"q": plain.q, "k": plain.k, "v": plain.v, "sinks": plain.sinks, "start_pos": 160}
    kernel = MhaKernel(built(config))
    for scales in ({"q_scale": 0.3}, {"k_scale": 1.7}, {"v_scale": 0.02},
                   {"q_scale": 0.2, "k_scale": 3.0, "v_scale": 7.0}):  # fmt: skip
        out, lse = kernel(**call, **scales)
        inputs = MhaInputs(config=config, scale=plain.scale, **call, **scales)
        for oracle in (exact(inputs), rounded(inputs)):
            assert compare(oracle.output, inputs.output_view(out)).passed
            assert compare(oracle.lse, inputs.lse_view(lse)).passed
        assert not compare(rounded(plain).output, plain.output_view(out)).passed


@pytest.mark.parametrize("mask", ["null", "causal", "chunked_causal[5]"])
def test_without_a_key_the_sink_is_all_there_is(mask):
    config = config_of((2, 1), mask=mask, sink=True, lse=True)
    inputs = mha_inputs(config, seq_len=41, num_keys=0)
    out, lse = MhaKernel(built(config))(inputs.q, inputs.k, inputs.v, sinks=inputs.sinks)
    assert (out == 0).all()
    assert compare(exact(inputs).lse, inputs.lse_view(lse)).passed
    assert math.isclose(float(lse[0, 0, 0]), float(inputs.sinks[0]), rel_tol=1e-6)


def test_a_sink_far_above_the_scores_takes_p_below_what_e4m3_holds():
    """P is relative to a maximum that starts at the sink: 2^-11 of it is 0 in e4m3. The row sum
    holds the unrounded P, so the LSE does not suffer."""
    config = config_of((1, 1), mask="null", sink=True, lse=True, output_dtype="fp32")
    inputs = mha_inputs(config, seq_len=32, num_keys=128, data="randn", scale=1e-3)
    call = {"q": inputs.q, "k": inputs.k, "v": inputs.v, "scale": 1e-3}
    for level, lost in ((5.0, False), (8.0, True)):  # 2^-7.2 and 2^-11.5
        sinks = np.full(1, level, np.float32)
        out, lse = MhaKernel(built(config))(**call, sinks=sinks)
        assert (out == 0).all() == lost
        of = MhaInputs(config=config, start_pos=0, sinks=sinks, **call)
        for oracle in (exact(of), rounded(of)):
            assert compare(oracle.output, of.output_view(out)).passed
            assert compare(oracle.lse, of.lse_view(lse)).passed


@pytest.mark.parametrize("tile", [(128, 128), (64, 64)])
@pytest.mark.parametrize(
    "knobs",
    [{"v_layout": "swizzled"}, {"v_layout": "plain"}, {"k_slots": 2}, {"k_slots": 2, "v_slots": 4},
     {"band": 2}, {"early_exp": 48}, {"early_exp": 0}, {"v_slots": 2}, {"rescale": "eager"},
     {"pv_pattern": "even"}],
    ids=str,
)  # fmt: skip
def test_every_knob_keeps_the_result(tile, knobs):
    # An eager maximum does not lag.
    threshold = 0.0 if knobs.get("rescale") == "eager" else 8.0
    config = config_of((1, 1), tile, mask="null", sink=True, rescale_threshold=threshold)
    for num_keys in (100, 700):
        check(config, tuple(knobs.items()), seq_len=64, num_keys=num_keys, data="late_max")


@pytest.mark.parametrize("tile", TILES)
def test_products_are_those_of_the_visible_tiles(tile):
    """32x32x64 products a tile and wave: of S and of O, depth / 64 and kv_block / 64 each 32 x 32
    block. None of bf16."""
    config, (depth, keys) = config_of((1, 1), tile), tile
    counts = check(config, seq_len=600, modes=["latest"]).runs[0].counts
    tiles = sum(
        len(config.tiles(t, seq_len=600, start_pos=0, num_keys=600)) for t in range(3)
    )  # fmt: skip
    products = keys // 32 * (depth // 64) + depth // 32 * (keys // 64)
    assert counts["v_mfma_f32_32x32x64_f8f6f4"] == tiles * config.num_warps * products
    assert not any("bf16" in name for name in counts if "mfma" in name)


def test_it_is_made_by_mlas_table():
    manifest = built(config_of()).manifest
    assert manifest.kernel == manifest.symbol == "mha_prefill_v2"
    assert manifest.schedule_file == "tables/streamed_prefill.py"
    assert "pv_priority" not in manifest.knobs and "band" in manifest.knobs


def test_what_is_refused():
    with pytest.raises(ConfigError, match="mha_prefill_v2 has no knob 'grid'"):
        built(config_of(), grid="persistent")
    with pytest.raises(ConfigError, match="num_warps=16"):
        built(config_of(num_warps=16))
    with pytest.raises(ConfigError, match=r"rescale_threshold.*e4m3"):
        config_of(rescale_threshold=9.0)


configs = st.builds(
    config_of,
    st.sampled_from(((1, 1), (4, 1), (8, 2), (6, 3))),
    st.sampled_from(TILES),
    mask=st.sampled_from(MASKS),
    output_dtype=st.sampled_from(("bf16", "fp32")),
    rescale_threshold=st.sampled_from((8.0, 0.0)),
    ragged=st.booleans(),
    page_size=st.sampled_from(PAGES),
    sink=st.booleans(),
    lse=st.booleans(),
)
sequences = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 300)),
        st.tuples(st.integers(1, 6), st.sampled_from(TAILS)),
        st.sampled_from((0, 1, 63, 64, 128, 200)),
    ),
    min_size=1,
    max_size=3,
).filter(lambda rows: any(length for length, _, _ in rows))


@drawing(2)
@pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")  # the emulator's JIT
@given(configs, sequences, st.sampled_from(KINDS), st.integers(0, 999))
def test_a_draw_of_the_product(config, rows, data, seed):
    lengths, tiles, starts = (list(column) for column in zip(*rows, strict=True))
    keys = [keys_of(config.kv_block, *of) for of in tiles]
    shape = shape_of(config, lengths, keys, starts)
    check(config, data=data, seed=seed, modes=[MODES[seed % 3]], **shape)
