"""What the host passes to MLA decode on gfx950, and which problems there is a kernel for."""

from __future__ import annotations

from mlagen.attention.latent.gfx950.sizes import ELEMENT_BYTES, VECTOR, WAVES
from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.families.mla_decode.counts import counts
from mlagen.families.mla_decode.problem import MlaDecodeConfig


def cache_bytes(k: MlaDecodeConfig) -> int:
    """Bytes of a row of the cache."""
    return k.cache_columns * ELEMENT_BYTES[k.cache_element]


def signature(k: MlaDecodeConfig, *, persistent: bool = False) -> Signature:
    """One workgroup a work item (`mlagen.families.mla_decode.plan`); `persistent`: several, those
    from `shares[workgroup]` to `shares[workgroup + 1]`.

    q as [tokens * H, 576], the cache as [pages, page_size, KV heads, 576], o [tokens * H, 512];
    partial_o fp32 [slots, rows, 512] and partial_lse fp32 [slots, rows], log2 units, of items that
    are a part of their sequence, with as many rows as a workgroup has. `lse_stride`: elements of
    lse from head to head. `kv_scales`: of rope-aware rows, fp32 [pages * page_size]; `q_scales`: of
    such queries, fp32 [tokens]. `kv_scale`: what multiplies O where the cache holds multiples of
    it; `scale_log2e` has it too, and the scale of an e4m3 q.
    """
    in_e4m3 = k.cache_dtype == "fp8_e4m3"
    return Signature(
        pack(
            ("q", _vectors(k.q_element), "read"),
            ("cache", _vectors(k.cache_element), "read"),
            ("items", "pointer:int32", "read"),
            *((("shares", "pointer:int32", "read"),) if persistent else ()),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            *((("kv_scales", "pointer:fp32", "read"),) if k.rope_aware else ()),
            *((("q_scales", "pointer:fp32", "read"),) if k.rope_aware_queries else ()),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            ("num_blocks", "u32", "value"),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            *counts("partial_lse@0", persistent=persistent),
            ("scale_log2e", "f32", "value"),
            *((("kv_scale", "f32", "value"),) if in_e4m3 else ()),
        ),
        grid=(("blocks" if persistent else "items", 1),),
        block=(64 * WAVES, 1, 1),
    )


def _vectors(element: str) -> str:
    """A tensor that is read 16 bytes at a time."""
    return "pointer:bf16" if element == "bf16" else f"pointer:{element}@{VECTOR}"
