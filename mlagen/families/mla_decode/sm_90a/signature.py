"""What the host passes to the MLA decode kernel, and which problems it is generated for."""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, VECTOR
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.dsl import Signature
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.errors import UnsupportedError
from mlagen.families.mla_decode.counts import counts
from mlagen.families.mla_decode.problem import MlaDecodeConfig

# Tools find FlashMLA's kernel in a profile by this part of its name.
SYMBOL = "mlagen_flash_fwd_splitkv_mla_kernel_sm90"


def refuse_chunks(k: MlaDecodeConfig) -> None:
    """UnsupportedError for a mask that there is no kernel for."""
    if k.chunk:
        raise UnsupportedError(
            f"mask={k.mask}: mla_decode_sm90 has no chunked masks",
            hint=f"null, causal, sliding_window_causal[{k.chunk}]; mla_decode_gfx950 and "
            "mla_decode_sm100 have chunks",
        )


def can_persist(k: MlaDecodeConfig) -> bool:
    """Whether there is a form whose blocks take several items."""
    return k.dtype == k.cache_dtype == "bf16"


def signature(
    k: MlaDecodeConfig,
    threads: int,
    *,
    persistent: bool = False,
    rows: int = ROWS,
    together: bool = False,
) -> Signature:
    """One block a work item (`mlagen.families.mla_decode.plan`); `persistent`: several, those from
    `shares[block]` to `shares[block + 1]`. `rows`: of Q that a block loads. `together`: blocks may
    put the parts of a row block together; `arrivals` has two words a slot then, zero before and
    after a call, and a row block's first slot has its state (`output/put_together.ptx.j2`).

    q as [tokens * H, 576] and the cache as [blocks * page, KV heads * 576] by tensor map, a q of
    e4m3 that becomes bf16 and a cache of single rows by pointer; o [tokens * H, 512]; partial_o
    fp32 [slots, 64, 512] and partial_lse fp32 [slots, 64], log2 units, of items that are a part of
    their sequence. `arrivals` [slots], zero before and after a call: how many warpgroups have
    stored such a part or taken it in. `lse_stride`: elements of lse from head to head. `kv_scales`:
    of rope-aware rows, fp32 [blocks * page]; `q_scales`: of such queries, fp32 [tokens].
    `kv_scale`: what multiplies O where the cache holds multiples of it; `scale_log2e` has it too,
    and the scale of an e4m3 q.
    """
    paged = PagedCopy.of(k)
    width = k.num_kv_heads * paged.columns
    box = TmaMatrix("cache", k.cache_element, width, paged.box_columns, paged.box_rows)
    pool: tuple[tuple[str, str | TmaMatrix, str], ...] = (("cache", box, "read"),)
    if paged.producer_threads:
        pool = (
            ("cache", f"pointer:{k.cache_element}@{VECTOR}", "read"),
            ("num_blocks", "u32", "value"),
        )
    if k.rope_aware:
        pool = (*pool, ("kv_scales", "pointer:fp32", "read"))
        pool = pool if paged.producer_threads else (*pool, ("num_blocks", "u32", "value"))
    elif k.cache_dtype != "bf16":
        pool = (*pool, ("kv_scale", "f32", "value"))
    queries: str | TmaMatrix = f"pointer:{k.q_element}@{VECTOR}"
    if k.compute == "fp8":
        queries = TmaMatrix("q", k.dtype, k.d_qk, 2 * COLUMNS, rows)
    elif k.dtype == "bf16":
        queries = TmaMatrix("q", k.dtype, k.d_qk, COLUMNS, rows)
    return Signature(
        pack(
            ("q", queries, "read"),
            *pool,
            *((("q_scales", "pointer:fp32", "read"),) if k.rope_aware_queries else ()),
            ("items", "pointer:int32", "read"),
            *((("shares", "pointer:int32", "read"),) if persistent else ()),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            *((("arrivals", "pointer:int32@8", "write"),) if persistent or together else ()),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            *counts(
                "arrivals@2" if persistent or together else "partial_lse@0",
                persistent=persistent,
            ),
        ),
        grid=(("blocks" if persistent else "items", 1),),
        block=(threads, 1, 1),
    )
