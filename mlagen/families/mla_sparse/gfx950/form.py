"""What the host passes to sparse MLA on gfx950, and which problems there is a kernel for."""

from __future__ import annotations

from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig

Problem = MlaSparsePrefillConfig | MlaSparseDecodeConfig
# Rows of a pool, bytes of one with what follows it, and where pages begin (`Paging`).
POOL_NUMBERS = ("cache_rows", "row_bytes", "page_magic", "page_shift", "page_gap")
LIST_NUMBERS = ("topk", "list_stride")
SPLIT_NUMBERS = ("split_magic", "split_shift", "splits")
# Which of these the setup alone needs: they follow each other.
SETUP_NUMBERS = (
    *(f"{which}{name}" for which in ("", "extra_") for name in LIST_NUMBERS),
    *SPLIT_NUMBERS[:2],
)


def is_decode(k: Problem) -> bool:
    """Whether the problem is decode's."""
    return isinstance(k, MlaSparseDecodeConfig)


def refuse_products(k: Problem) -> None:
    """ConfigError for products that no form has."""
    if getattr(k, "compute", "bf16") != "bf16":
        name = "mla_sparse_decode_gfx950" if is_decode(k) else "mla_sparse_prefill_gfx950"
        raise ConfigError(
            f"compute=fp8: {name} has no such form",
            hint="compute=bf16 multiplies the same numbers; sm_100a has compute=fp8",
        )


def signature(k: Problem) -> Signature:
    """A workgroup has up to 64 heads of a query, or 128, a *unit*; in decode one of `splits` parts
    of its keys, which are counted along y.

    q as [queries * H, d_qk]. Caches, lists, lengths, positions and sinks as the kernels of Hopper
    take them (`mla_sparse.nvidia.signature`); `zeros` [d_qk] bf16: a row of zeros, which is
    fetched where an index names no row. o [queries * H, 512]; lse fp32 [rows, H] and max_logits of
    prefill, [batch, H, q_len] of decode. With more splits than one: partial_o fp32 [units * splits,
    64 or 128, 512] and partial_lse [units * splits, 64 or 128], log2 units.
    x // splits = (2 x * `split_magic`) >> 32 >> (`split_shift` - 31). `empty_lse`: the bits of what
    a query without keys gets.
    """
    decode = is_decode(k)
    pools = ("", "extra_") if has(k, "extra") else ("",)
    places = ("positions", "first_position") if has(k, "causal") else ()
    side = ("kv_scales",) if k.row_format.scale == "side" else ()
    tensors = [
        f"{which}{name}" for which in pools for name in ("cache", *side, "indices", "topk_length")
    ]
    numbers = (*POOL_NUMBERS, *(("page_size",) if k.row_format.behind else ()))
    outputs = ("partial_o", "partial_lse") if decode else ("max_logits",)
    return Signature(
        pack(
            ("q", f"pointer:{k.dtype}", "read"),
            *((name, f"pointer:{_element(k, name)}", "read") for name in (*tensors, *places)),
            ("zeros", "pointer:bf16", "read"),
            ("sink", "pointer:fp32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            *((name, "pointer:fp32", "write") for name in ("lse", *outputs)),
            *((f"{which}{name}", "u32", "value") for which in pools for name in numbers),
            *((f"{which}{name}", "u32", "value") for which in pools for name in LIST_NUMBERS),
            *((name, "u32", "value") for name in (SPLIT_NUMBERS if decode else ())),
            ("empty_lse", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            *((("kv_scale", "f32", "value"),) if k.rows == "e4m3" else ()),
        ),
        grid=(("units", 1), ("splits", 1)) if decode else (("units", 1),),
        block=(64 * WAVES, 1, 1),
    )


def has(k: Problem, field: str) -> bool:
    """Whether the problem has a field of decode, and it is set."""
    return bool(getattr(k, field, False))


def _element(k: Problem, name: str) -> str:
    if name.endswith("cache"):
        return k.row_format.element
    return "fp32" if name.endswith("kv_scales") else "int32"
