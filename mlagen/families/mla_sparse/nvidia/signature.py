"""What the host passes to the sparse prefill kernel."""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, VECTOR
from mlagen.dsl import Signature
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig

# Tools find FlashMLA's kernel in a profile by this part of its name.
SYMBOL = "mlagen_sparse_attn_fwd_kernel_sm90"

DECODE_SYMBOL = "mlagen_flash_fwd_splitkv_mla_fp8_sparse_kernel_sm90"
# Rows of a pool, bytes of one with what follows it, and where pages begin.
POOL_NUMBERS = ("cache_rows", "row_bytes", "page_magic", "page_shift", "page_gap")
# Formats whose rows have scales in a tensor of their own.
SCALED = ("e4m3_row", "e4m3_block32", "e4m3_block64", "e4m3_block128", "rope_aware")


def signature(
    k: MlaSparsePrefillConfig,
    threads: int,
    *,
    rows: int | None = ROWS,
    grid: str = "blocks",
    resident: int = 1,
    clusters: int = 1,
) -> Signature:
    """Blocks take items: `units` of them, each up to 64 heads of a query, the heads of a query
    after one another; or a block has a query (`grid` "units"), `clusters` of them a CTA cluster.

    q as [rows * H, d_qk] by tensor map, in boxes of `rows`, or by pointer (None, and e4m3 that
    bf16 is made of); the
    cache by pointer: row r lies `row_bytes`
    r + `page_gap` (r `page_magic` >> `page_shift`) bytes further (`Paging`). `cache_rows`: rows
    that an index may name. indices int32, a query's list `list_stride` after the one before it,
    `topk` long; topk_length int32 [rows]; sink fp32 [H]; o [rows * H, 512]; lse and max_logits fp32
    [rows, H]. `scale_log2e` has the scale of an e4m3 q, too. `empty_lse`: the bits of what a query
    without keys gets."""
    return Signature(
        pack(
            _queries(k, rows),
            ("cache", f"pointer:{_element(k)}@{VECTOR}", "read"),
            *((("kv_scales", "pointer:fp32", "read"),) if k.rows in SCALED else ()),
            *((("kv_scale", "f32", "value"),) if k.rows == "e4m3" else ()),
            ("indices", "pointer:int32", "read"),
            ("topk_length", "pointer:int32", "read"),
            ("sink", "pointer:fp32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("max_logits", "pointer:fp32", "write"),
            ("units", "u32", "value"),
            *((name, "u32", "value") for name in _pool_numbers(k)),
            ("topk", "u32", "value"),
            ("list_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            ("empty_lse", "u32", "value"),
        ),
        grid=((grid, 1),),
        block=(threads, 1, 1),
        resident=resident,
        clusters=clusters,
    )


def decode_signature(
    k: MlaSparseDecodeConfig,
    threads: int,
    *,
    rows: int | None = ROWS,
    resident: int = 1,
    clusters: int = 1,
    together: bool = False,
    bulk: bool = False,
) -> Signature:
    """A block has a split of a query's keys, or all of them: `blocks` is queries (batch * q_len)
    times `splits`, the splits of a query after one another; `clusters` of them are a CTA cluster,
    and have heads of one query and the same split. As in prefill, with lengths [batch] of
    lists [batch * q_len] or [batch] `list_stride` apart; positions are laid out like indices,
    `first_position` int32 [batch]; numbers and tensors of the second cache begin with `extra_`. o
    [batch * q_len * H, 512], lse [batch, H, q_len]; with more splits than one partial_o fp32
    [queries * splits, 64, 512] and partial_lse [queries * splits, 64], log2 units. `whole` is
    1 where no list is cut, so that no length is read. With `together` blocks may put the parts of a
    query together, as many as the argument of that name says; `arrivals` has two words a slot then,
    zero before and after a call, and the first slot of a query has its state. With `bulk` an
    argument of that name says whether rows are fetched whole, 1, or loaded, 0."""
    pools = tuple(
        argument
        for which in (("", "extra_") if k.extra else ("",))
        for argument in (
            (f"{which}cache", f"pointer:{_element(k)}@{VECTOR}", "read"),
            *(((f"{which}kv_scales", "pointer:fp32", "read"),) if k.rows in SCALED else ()),
            (f"{which}indices", "pointer:int32", "read"),
            (f"{which}topk_length", "pointer:int32", "read"),
        )
    )
    numbers = tuple(
        (f"{which}{name}", "u32", "value")
        for which in (("", "extra_") if k.extra else ("",))
        for name in (*_pool_numbers(k), "topk", "list_stride", "whole")
    )
    places = (("positions", "pointer:int32", "read"), ("first_position", "pointer:int32", "read"))
    return Signature(
        pack(
            _queries(k, rows),
            *pools,
            *(places if k.causal else ()),
            *((("kv_scale", "f32", "value"),) if k.rows == "e4m3" else ()),
            ("sink", "pointer:fp32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            *((("arrivals", "pointer:int32@8", "write"),) if together else ()),
            ("splits", "u32", "value"),
            *((("together", "u32", "value"),) if together else ()),
            *((("bulk", "u32", "value"),) if bulk else ()),
            *numbers,
            ("scale_log2e", "f32", "value"),
            ("empty_lse", "u32", "value"),
        ),
        grid=(("blocks", 1),),
        block=(threads, 1, 1),
        resident=resident,
        clusters=clusters,
    )


def _pool_numbers(k: MlaSparsePrefillConfig | MlaSparseDecodeConfig) -> tuple[str, ...]:
    return (*POOL_NUMBERS, "page_size") if k.row_format.behind else POOL_NUMBERS


def _queries(
    k: MlaSparsePrefillConfig | MlaSparseDecodeConfig, rows: int | None
) -> tuple[str, str | TmaMatrix, str]:
    """The argument q: by tensor map in boxes of `rows`; None, and of e4m3 that bf16 is made
    of, by pointer."""
    native = k.compute == "fp8"
    if rows is None or not (native or k.dtype == "bf16"):
        return ("q", f"pointer:{k.dtype}@{VECTOR}", "read")
    columns = 2 * COLUMNS if native else COLUMNS
    return ("q", TmaMatrix("q", k.dtype, k.d_qk, columns, rows), "read")


def _element(k: MlaSparsePrefillConfig | MlaSparseDecodeConfig) -> str:
    return "bf16" if k.rows == "bf16" else "fp8_e4m3"
