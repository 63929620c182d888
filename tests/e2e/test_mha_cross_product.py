"""mha_prefill_v2 over the product of its options: corners always, a draw of the rest.

MLAGEN_CROSS_PRODUCT=2000 draws that many, anew each time; without it a few, the same each time.
"""

from __future__ import annotations

from functools import lru_cache

import draws
import pytest
from draws import MODES, drawing, shape_of
from hypothesis import given
from hypothesis import strategies as st

from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.verify import verify

MASKS = (
    "null", "causal", "sliding_window_causal[1]", "sliding_window_causal[64]",
    "sliding_window_causal[100]", "chunked_causal[1]", "chunked_causal[64]", "chunked_causal[77]",
)  # fmt: skip
HEADS = ((1, 1), (4, 1), (8, 2), (6, 3))
TILES = range(1, 10)
TAILS = (0, 1, 47)
STARTS = (0, 1, 63, 64, 100)
LENGTHS = (0, 1, 300)
PAGES = (0, 16, 32, 64, 128, 256)
DATA = ("realistic", "randn", "late_max", "falling", "jumps")


@lru_cache(maxsize=32)
def built(config):
    return build("mha_prefill_v2", config)


def keys_of(tiles, tail):
    return draws.keys_of(64, tiles, tail)


def check(config, lengths, keys, starts, data, seed):
    """`lengths`, `keys`, `starts`: of each sequence; a dense kernel takes the first of each."""
    shape = shape_of(config, lengths, keys, starts)
    report = verify(built(config), data=data, seed=seed, modes=[MODES[seed % 3]], **shape)
    assert report.passed, str(report.error())
    assert all(c.undecided == 0 for run in report.runs for c in run.comparisons)


CORNERS = [
    # heads, mask, depth, page, ragged, sink, output, lengths, tiles, tails, starts
    ((1, 1), 0, 64, 0, False, False, "fp32", (1,), (1,), (1,), (0,)),
    ((8, 2), 1, 128, 0, False, True, "bf16", (300,), (9,), (47,), (100,)),
    ((6, 3), 4, 64, 0, False, True, "fp32", (300,), (6,), (0,), (63,)),
    ((4, 1), 7, 128, 0, False, False, "bf16", (300,), (7,), (1,), (64,)),
    ((8, 2), 1, 128, 0, True, True, "bf16", (300, 0, 1), (5, 2, 1), (0, 1, 47), (0, 64, 63)),
    ((6, 3), 0, 64, 0, True, False, "fp32", (1, 1, 300), (9, 1, 2), (47, 1, 1), (0, 0, 1)),
    ((4, 1), 2, 128, 0, True, True, "bf16", (0, 300), (3, 6), (47, 47), (1, 63)),
    ((1, 1), 6, 64, 0, True, True, "bf16", (300, 300), (9, 3), (1, 0), (100, 0)),
    ((8, 2), 1, 64, 16, False, True, "fp32", (300,), (5, 1), (1, 1), (1, 0)),
    ((1, 1), 4, 128, 16, True, True, "bf16", (300, 1), (8, 9), (47, 0), (100, 64)),
    ((4, 1), 0, 128, 32, True, True, "fp32", (1, 0, 300), (2, 4, 6), (1, 47, 0), (0, 0, 0)),
    ((6, 3), 7, 64, 32, False, False, "bf16", (300,), (7, 3), (0, 47), (63, 1)),
    ((8, 2), 3, 128, 64, True, False, "bf16", (300, 300), (7, 1), (1, 1), (100, 63)),
    ((1, 1), 1, 64, 64, False, True, "bf16", (1,), (9, 4), (0, 47), (64, 100)),
    ((6, 3), 1, 128, 128, True, True, "fp32", (300, 1, 0), (8, 3, 1), (47, 1, 1), (100, 1, 0)),
    ((4, 1), 4, 64, 128, False, True, "bf16", (300,), (9, 2), (1, 0), (64, 63)),
    ((8, 2), 0, 64, 256, True, True, "bf16", (300, 0), (9, 5), (47, 0), (0, 1)),
    ((1, 1), 5, 128, 256, False, False, "fp32", (300,), (6, 6), (0, 1), (1, 100)),
]  # fmt: skip


@pytest.mark.parametrize("corner", range(len(CORNERS)))
def test_corners(corner):
    heads, mask, depth, page, ragged, sink, output, lengths, tiles, tails, starts = CORNERS[corner]
    config = MhaConfigV2(
        *heads,
        mask=MASKS[mask],
        depth=depth,
        output_dtype=output,
        ragged=ragged,
        page_size=page,
        sink=sink,
        lse=corner % 3 != 0,
    )
    keys = [keys_of(n, tail) for n, tail in zip(tiles, tails, strict=True)]
    check(config, list(lengths), keys, list(starts), DATA[corner % 5], corner)


def test_the_corners_hold_every_value():
    """A value that no corner has would be left to the draw."""
    columns = list(zip(*CORNERS, strict=True))
    assert set(columns[0]) == set(HEADS)
    assert {MASKS[index] for index in columns[1]} == set(MASKS)
    assert set(columns[2]) == {64, 128} and set(columns[3]) == set(PAGES)
    assert {n for tiles in columns[8] for n in tiles} == set(TILES)
    assert {tail for tails in columns[9] for tail in tails} == set(TAILS)
    assert {start for starts in columns[10] for start in starts} == set(STARTS)
    assert {rows for lengths in columns[7] for rows in lengths} == set(LENGTHS)


configs = st.builds(
    lambda heads, **fields: MhaConfigV2(*heads, **fields),
    st.sampled_from(HEADS),
    mask=st.sampled_from(MASKS),
    depth=st.sampled_from((64, 128)),
    output_dtype=st.sampled_from(("bf16", "fp32")),
    ragged=st.booleans(),
    page_size=st.sampled_from(PAGES),
    sink=st.booleans(),
    lse=st.booleans(),
)
sequences = st.lists(
    st.tuples(
        st.sampled_from(LENGTHS),
        st.builds(keys_of, st.sampled_from(TILES), st.sampled_from(TAILS)),
        st.sampled_from(STARTS),
    ),
    min_size=1,
    max_size=3,
).filter(lambda rows: any(length for length, _, _ in rows))


@drawing(4)
@pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")  # the emulator's JIT
@given(configs, sequences, st.sampled_from(DATA), st.integers(0, 999))
def test_a_draw_of_all_the_rest(config, rows, data, seed):
    lengths, keys, starts = (list(column) for column in zip(*rows, strict=True))
    check(config, lengths, keys, starts, data, seed)
