"""Sizes that all kernels over latent rows have."""

from __future__ import annotations

ROWS = 64  # query rows a block
TILE = 64  # keys a tile
COLUMNS = 64  # bf16 columns of a 128-byte tile
VECTOR = 16  # bytes that a thread loads at once
