"""The knobs of a prefill kernel's tiles, which its problem is given."""

from __future__ import annotations

import math
from typing import Any

from mlagen.targets.gfx950.dsl import Space


def with_tile_knobs(k: Any, s: Space, kv_blocks: tuple[int, ...]) -> Any:
    """The problem with its tiles: keys, waves, query rows a wave, and when O is rescaled."""
    most = math.inf if k.dtype == "bf16" else 8.8  # e4m3 ends at 448
    return k.with_tiles(
        kv_block=s.choice("kv_block", *kv_blocks, comment="keys a tile"),
        num_warps=s.choice("num_warps", 8, comment="waves: two halves that take turns"),
        q_block_size=s.choice("q_block_size", 32, comment="query rows a wave: an MFMA's columns"),
        rescale_threshold=s.number("rescale_threshold", 8.0, 4.0, 0.0, least=0.0, most=most,
                                   comment="log2 units that a row maximum may grow unheeded"),
        fp8_mma_k_128=s.choice("fp8_mma_k_128", False, comment="P could not stay in registers"),
    )  # fmt: skip
