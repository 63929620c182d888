"""What the host passes to MLA decode on Blackwell."""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE, VECTOR
from mlagen.dsl import Signature
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.families.mla_decode.counts import counts
from mlagen.families.mla_decode.problem import MlaDecodeConfig

# Tools find FlashMLA's kernel in a profile by a part of this name.
SYMBOL = "mlagen_flash_fwd_splitkv_mla_kernel_sm100"


def box_columns(k: MlaDecodeConfig) -> int:
    """Columns that TMA fetches with one box, 128 bytes."""
    return COLUMNS * 2 // k.product_bytes


def box_rows(k: MlaDecodeConfig, ctas: int = 1) -> int:
    """Rows that TMA fetches with one box: those of a tile that lie in one page; of a CTA pair, in
    which a block has half of a tile's rows, up to so many. 1: only by their numbers, four at
    once."""
    return min(k.page_size, TILE // ctas)


def _pool(k: MlaDecodeConfig, ctas: int) -> tuple[tuple[str, str | TmaMatrix, str], ...]:
    """The arguments of the cache."""
    scale = (("kv_scale", "f32", "value"),) if k.cache_dtype == "fp8_e4m3" else ()
    if k.dequantized:
        return (
            ("cache", f"pointer:{k.cache_element}@{VECTOR}", "read"),
            ("num_blocks", "u32", "value"),
            *((("kv_scales", "pointer:fp32", "read"),) if k.rope_aware else scale),
        )
    width = k.num_kv_heads * k.d_qk
    most = box_rows(k, ctas)
    boxes = {"cache": most, "rows": 1} if most > 1 else {"rows": 1}
    maps = tuple(
        (name, TmaMatrix("cache", k.cache_dtype, width, box_columns(k), rows), "read")
        for name, rows in boxes.items()
    )
    return (*maps, *scale)


def signature(
    k: MlaDecodeConfig, threads: int, ctas: int, *, persistent: bool = False
) -> Signature:
    """One block a work item (`mlagen.families.mla_decode.plan`), or a CTA pair, whose blocks are a
    cluster of `ctas`. `persistent`: several items a block or pair, those from `shares[n]` to
    `shares[n + 1]`.

    q as [tokens * H, 576] and the cache as [blocks * page, KV heads * 576] by tensor map, the cache
    in boxes of a page's rows, and once more in boxes of one row (`rows`); what is converted is a
    pointer. o [tokens * H, 512]; partial_o fp32 [slots, 64, 512] and partial_lse fp32 [slots, 64]
    (of a pair 128), log2 units, of items that are a part of their sequence. `lse_stride`: elements
    of lse from head to head. `kv_scale`: what multiplies O where the cache holds multiples of it;
    `scale_log2e` has it too, and the scale of an e4m3 q. `kv_scales`: of rope-aware rows, fp32
    [blocks * page]; `q_scales`: of such queries, fp32 [tokens].
    """
    queries: str | TmaMatrix = TmaMatrix("q", k.dtype, k.d_qk, box_columns(k), ROWS)
    if not k.as_stored:
        queries = f"pointer:{k.q_element}@{VECTOR}"
    return Signature(
        pack(
            ("q", queries, "read"),
            *_pool(k, ctas),
            *((("q_scales", "pointer:fp32", "read"),) if k.rope_aware_queries else ()),
            ("items", "pointer:int32", "read"),
            *((("shares", "pointer:int32", "read"),) if persistent else ()),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            *counts("partial_lse@0", persistent=persistent),
        ),
        grid=(("items" if ctas == 1 and not persistent else "blocks", 1),),
        block=(threads, 1, 1),
        clusters=ctas,
    )
