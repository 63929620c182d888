"""Sizes of the loop over latent rows on gfx950."""

from __future__ import annotations

KEYS = 32  # keys a tile
BF16 = 2
ELEMENT_BYTES = {"bf16": 2, "fp8_e4m3": 1}
VECTOR = 16  # bytes that a lane fetches at once
SPAN = 128  # bytes of a row that lie together in LDS: what eight lanes fetch
WAVES = 4  # of a workgroup, each with query rows of its own
