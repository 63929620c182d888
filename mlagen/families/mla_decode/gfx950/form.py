"""What the host passes to MLA decode on gfx950, which problems there is a kernel for, and where a
lane holds what.

v_mfma_f32_16x16x32_bf16, lane l (CDNA4 ISA guide, matrix instruction layouts): operand A row
l % 16, B column l % 16, k = 8 * (l / 16) + 0..7; result column l % 16, register r is row
4 * (l / 16) + r. Here S^T = K Q^T and O^T = V^T P: a lane has one query row, and its scores of
32 keys, packed, are its P.
"""

from __future__ import annotations

from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl.lds import Fragment

ROWS, STEP = 16, 32  # rows of an operand, products that an instruction adds
KEYS = 32  # keys a tile
BF16 = 2
SPAN = 128  # bytes of a row that lie together in LDS: what eight lanes fetch
WAVES = 4  # of a workgroup: 16 query rows each


def refuse(k: MlaDecodeConfig) -> None:
    """ConfigError where there is no kernel for the problem on gfx950."""
    wanted = {"dtype": (k.dtype, "bf16"), "cache_dtype": (k.cache_dtype, "bf16")}
    for name, (given, there) in wanted.items():
        if given != there:
            raise ConfigError(
                f"{name}={given}: mla_decode_gfx950 has no such form",
                hint=f"{name}={there} here, or the kernel of sm_90a",
            )


def signature(k: MlaDecodeConfig, *, persistent: bool = False) -> Signature:
    """One workgroup a work item (`mlagen.families.mla_decode.plan`); `persistent`: several, those
    from `shares[workgroup]` to `shares[workgroup + 1]`.

    q as [tokens * H, 576], the cache as [pages, page_size, KV heads, 576], o [tokens * H, 512];
    partial_o fp32 [slots, 64, 512] and partial_lse fp32 [slots, 64], log2 units, of items that are
    a part of their sequence. `lse_stride`: elements of lse from head to head.
    """
    return Signature(
        pack(
            ("q", "pointer:bf16", "read"),
            ("cache", "pointer:bf16", "read"),
            ("items", "pointer:int32", "read"),
            *((("shares", "pointer:int32", "read"),) if persistent else ()),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            ("num_blocks", "u32", "value"),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
        ),
        grid=(("blocks" if persistent else "items", 1),),
        block=(64 * WAVES, 1, 1),
    )


def key_fragments() -> list[Fragment]:
    """A span of K as operand A of S^T = K Q^T, 16 bytes a read: by step of 32 columns, then by 16
    keys."""

    def fragment(step: int, block: int) -> Fragment:
        return lambda lane: (
            ROWS * block + lane % ROWS,
            BF16 * STEP * step + 16 * (lane // ROWS),
        )

    return [
        fragment(step, block)
        for step in range(SPAN // BF16 // STEP)
        for block in range(KEYS // ROWS)
    ]


def value_fragments() -> list[Fragment]:
    """A span of V^T as operand A of O^T = V^T P, 8 bytes a transposing read: by 16 columns, then by
    16 keys. 16 lanes fetch four keys of 16 columns, four lanes a key, and lane j of them receives
    column j: the keys whose scores its registers of S^T hold."""

    def fragment(columns: int, part: int) -> Fragment:
        def place(lane: int) -> tuple[int, int]:
            key, column = divmod(lane % ROWS, 4)
            return ROWS * part + 4 * (lane // ROWS) + key, BF16 * ROWS * columns + 8 * column

        return place

    return [
        fragment(columns, part)
        for columns in range(SPAN // BF16 // ROWS)
        for part in range(KEYS // ROWS)
    ]
