"""Masks against the plainest reading of their predicates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagen.attention.masks import (
    Causal,
    ChunkedCausal,
    Mask,
    Null,
    SlidingWindowCausal,
    TileStatus,
)
from mlagen.errors import ConfigError

MASKS = st.one_of(
    st.just(Null()),
    st.just(Causal()),
    st.builds(SlidingWindowCausal, st.integers(1, 90)),
    st.builds(ChunkedCausal, st.integers(1, 90)),
)


def sees(mask: Mask, q: int, k: int) -> bool:
    """The predicate, written once more."""
    match mask:
        case Null():
            return True
        case Causal():
            return k <= q
        case SlidingWindowCausal(window):
            return q - window + 1 <= k <= q
        case ChunkedCausal(window):
            return k <= q and k // window == q // window
    raise AssertionError(mask)


def table(mask: Mask, q: int, rows: int, num_keys: int) -> np.ndarray:
    return np.array(
        [[sees(mask, position, k) for k in range(num_keys)] for position in range(q, q + rows)],
        dtype=bool,
    ).reshape(rows, num_keys)


@given(MASKS, st.integers(0, 150), st.integers(1, 40), st.integers(0, 200))
def test_predicate_and_key_ranges(mask, q, rows, num_keys):
    expected = table(mask, q, rows, num_keys)
    got = mask.visible(np.arange(q, q + rows)[:, None], np.arange(num_keys)[None, :])
    assert np.array_equal(got, expected)
    assert list(mask.keys(q, rows, num_keys)) == list(np.flatnonzero(expected.any(axis=0)))
    assert list(mask.common_keys(q, rows, num_keys)) == list(np.flatnonzero(expected.all(axis=0)))


@given(
    MASKS,
    st.integers(0, 150),
    st.integers(1, 40),
    st.integers(0, 200),
    st.integers(0, 12),
    st.integers(1, 24),
)
def test_tile_status(mask, q, rows, num_keys, tile, keys):
    # Keys beyond num_keys exist for nobody.
    width = max(num_keys, (tile + 1) * keys)
    seen = table(mask, q, rows, width)
    seen[:, num_keys:] = False
    part = seen[:, tile * keys : (tile + 1) * keys]
    expected = (
        TileStatus.FULLY_VISIBLE
        if part.all()
        else TileStatus.PARTIAL
        if part.any()
        else TileStatus.FULLY_HIDDEN
    )
    assert mask.status(q, rows, tile * keys, keys, num_keys) is expected


@given(MASKS, st.integers(0, 150), st.integers(1, 40), st.integers(0, 200), st.integers(1, 24))
def test_tiles_are_those_not_hidden(mask, q, rows, num_keys, block):
    wanted = [
        tile
        for tile in range(-(-num_keys // block))
        if mask.status(q, rows, tile * block, block, num_keys) is not TileStatus.FULLY_HIDDEN
    ]
    assert list(mask.tiles(q, rows, num_keys, block)) == wanted


def test_causal_tile_counts_of_the_contract():
    # tiles = ceil(min(q0 + BQ, num_keys) / BK); fully visible = floor((q0 + 1) / BK)
    for q in (0, 1, 63, 64, 100, 256):
        for num_keys in (1, 64, 65, 300, 512):
            tiles = Causal().tiles(q, 256, num_keys, 64)
            assert len(tiles) == -(-min(q + 256, num_keys) // 64)
            full = [
                t
                for t in tiles
                if Causal().status(q, 256, 64 * t, 64, num_keys) is TileStatus.FULLY_VISIBLE
            ]
            assert len(full) == min((q + 1) // 64, num_keys // 64)


@pytest.mark.parametrize(
    "mask", [Null(), Causal(), SlidingWindowCausal(512), ChunkedCausal(1)], ids=str
)
def test_text_and_back(mask):
    assert Mask.parse(str(mask)) == mask
    assert Mask.parse(f"  {mask} ".replace("[", " [ ")) == mask


@pytest.mark.parametrize(
    "text, words",
    [
        ("casual", ["unknown mask 'casual'", "chunked_causal[W]"]),
        ("", ["unknown mask"]),
        ("causal[8]", ["causal has no window"]),
        ("sliding_window_causal", ["needs a window", "sliding_window_causal[512]"]),
        ("sliding_window_causal[]", ["needs a window"]),
        ("chunked_causal[x]", ["'x' is no integer"]),
        ("chunked_causal[0]", ["chunked_causal[0]", "1 to 2147483647"]),
        ("sliding_window_causal[-4]", ["sliding_window_causal[-4]"]),
        ("sliding_window_causal[2147483648]", ["1 to 2147483647"]),
        ("causal and more", ["unknown mask"]),
    ],
)
def test_bad_text_is_refused(text, words):
    with pytest.raises(ConfigError) as caught:
        Mask.parse(text)
    for word in words:
        assert word in str(caught.value)


def test_a_window_is_an_integer():
    with pytest.raises(ConfigError, match="no integer"):
        SlidingWindowCausal(5.0)
