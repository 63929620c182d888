"""The K and V rings of MHA prefill on gfx950: how their tiles lie in LDS."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import (
    BF16,
    FORMATS,
    key_fragments,
    transposed_fragments,
)
from mlagen.dsl import Ring, Space, Subtiled, Xor
from mlagen.families.mha_prefill.problem import MhaConfig

SWIZZLES = {
    # Address bits 8, 9 of a 32 x 64 B sub-block select the row's group of four: XORed into the
    # 16-byte column they spread the 16 lanes of a ds_read_b128 phase over all 64 banks.
    "8-9 into 4-5": Xor((8, 9), (4, 5)),
    "9-8 into 4-5": Xor((9, 8), (4, 5)),
    "none": None,
}


def key_ring(s: Space, k: MhaConfig, *, slots: int, swizzle: str) -> Ring:
    """K in LDS: sub-blocks of 32 keys x 64 bytes, swizzled."""
    return s.lds.ring(
        "K",
        layout=Subtiled(k.kv_block, k.depth * BF16, 32, 64, SWIZZLES[swizzle]),
        slots=slots,
        waves=k.num_warps,
        fragments=key_fragments(k.kv_block, k.depth),
        width=16,
        comment="keys x depth, read by ds_read_b128",
    )


def value_ring(s: Space, k: MhaConfig, *, slots: int) -> Ring:
    """V in LDS: sub-blocks of 8 keys x 64 bytes, unswizzled, for transposing reads."""
    return s.lds.ring(
        "V",
        layout=Subtiled(k.kv_block, k.depth * BF16, 8, 64),
        slots=slots,
        waves=k.num_warps,
        fragments=transposed_fragments(FORMATS["bf16"], k.kv_block, k.depth),
        width=8,
        comment="keys x depth, read transposed by ds_read_b64_tr_b16",
    )
