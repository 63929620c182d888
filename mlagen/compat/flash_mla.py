"""FlashMLA's dense decoding and sparse attention, its names and signatures, over mlagen's kernels.

    from mlagen.compat import flash_mla
    flash_mla.install()        # `import flash_mla` finds this module from now on

What differs: any number of heads up to 128, pages of 1, 16, 32 or multiples of 64, an e4m3 cache
with one scale; in sparse attention, any topk and rows in bf16 too. A schedule once made is right
for other lengths too, only less even. fp16, a dense cache with gaps between its rows and dense
prefill are refused. Importing this module imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from mlagen.compat.flash_mla_sparse import flash_mla_sparse_fwd as flash_mla_sparse_fwd
from mlagen.compat.flash_mla_sparse import sparse_decode
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_decode.device_plan import MlaDecodePlan
from mlagen.ops.torch_decode import decode_kernel

NAME = "flash_mla"


@dataclass
class FlashMLASchedMeta:
    """How calls' work is distributed, found at the first call and kept."""

    have_initialized: bool = False
    plan: MlaDecodePlan | None = field(default=None, repr=False)


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """A schedule that its first call fills in. Arguments are those of older versions; none is
    looked at."""
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta,
    num_splits: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Any = None,
    attn_sink: Any = None,
    extra_k_cache: Any = None,
    extra_indices_in_kvcache: Any = None,
    topk_length: Any = None,
    extra_topk_length: Any = None,
    *,
    descale_q: Any = None,
    descale_k: Any = None,
) -> tuple[Any, Any]:
    """(out [B, s_q, H, 512] bf16, lse [B, H, s_q] fp32, +inf for a row without keys) of decoding,
    sparse where `indices` are given and else dense.

    `q` [B, s_q, H, 576] bf16 or e4m3, `k_cache` [num_blocks, page, KV heads, 576] bf16 or e4m3,
    `block_table` [B, pages] and `cache_seqlens` [B] int32. `softmax_scale`: q.shape[-1] ** -0.5
    where it is not given. `descale_q`, `descale_k`: what numbers of an e4m3 q and cache are
    multiples of. The first call with a schedule reads the lengths and waits for the GPU; later
    ones, and a graph of them, do not. A `q` or `block_table` with gaps is copied.

    Sparse: `q` [B, s_q, H, 576 or 512] bf16; `k_cache` [num_blocks, page, 1, bytes] with rows of
    656 bytes (576), 584 or 528 (512), or bf16; `indices` [B, s_q, topk] int32, block * page +
    place; `attn_sink` [H] fp32; `topk_length` [B] int32; and a second cache with its own.
    `block_table`, `cache_seqlens` and the schedule are not looked at, and no call waits for the GPU
    but the first of a shape. A `q` with gaps, and lists that lie unevenly, are copied.

    Raises ConfigError for what no kernel takes, UnsupportedError where there is none yet.
    """
    sparse = {
        "attn_sink": attn_sink, "extra_k_cache": extra_k_cache,
        "extra_indices_in_kvcache": extra_indices_in_kvcache, "topk_length": topk_length,
        "extra_topk_length": extra_topk_length,
    }  # fmt: skip
    if head_dim_v != 512:
        raise ConfigError(f"head_dim_v={head_dim_v} is not supported", hint="head_dim_v=512")
    if not isinstance(tile_scheduler_metadata, FlashMLASchedMeta):
        raise ConfigError(
            f"tile_scheduler_metadata is a {type(tile_scheduler_metadata).__name__}",
            hint="get_mla_metadata() of this module makes it",
        )
    scale = float(q.shape[-1]) ** -0.5 if softmax_scale is None else float(softmax_scale)
    scale_k = 1.0 if descale_k is None else float(descale_k)
    if indices is not None:
        for name, value in (
            ("causal", causal),
            ("num_splits", num_splits),
            ("descale_q", descale_q),
        ):
            if value is not None and value is not False:
                raise ConfigError(
                    f"{name}={value} with indices", hint=f"sparse decoding takes no {name}"
                )
        tile_scheduler_metadata.have_initialized = True
        return sparse_decode(
            q, k_cache, indices, scale, scale_k, is_fp8_kvcache=is_fp8_kvcache, more=sparse
        )
    for name, value in sparse.items():
        if value is not None:
            raise ConfigError(
                f"{name} is given, but indices are not", hint="it is of sparse decoding"
            )
    return _dense_decode(
        (q, k_cache, block_table, cache_seqlens), tile_scheduler_metadata, causal, is_fp8_kvcache,
        (scale, scale_k, 1.0 if descale_q is None else float(descale_q)),
    )  # fmt: skip


def _dense_decode(
    tensors: tuple[Any, Any, Any, Any],
    meta: FlashMLASchedMeta,
    causal: bool,
    is_fp8_kvcache: bool,
    scales: tuple[float, float, float],
) -> tuple[Any, Any]:
    """Dense decoding. `scales`: of dot products, of cache and q."""
    q, k_cache, block_table, cache_seqlens = tensors
    if is_fp8_kvcache != (str(k_cache.dtype) == "torch.float8_e4m3fn"):
        raise ConfigError(
            f"is_fp8_kvcache={is_fp8_kvcache} with a cache of {k_cache.dtype}",
            hint="dense decoding takes bfloat16, or float8_e4m3fn with is_fp8_kvcache=True",
        )
    if q.shape[-1] != 576 and q.dtype == torch.float8_e4m3fn:
        raise ConfigError(
            f"q has shape {tuple(q.shape)}: rows of 576 numbers are meant here",
            hint="rope-aware rows of 640 bytes: mlagen.ops.mla_decode(.., q_scales=..)",
        )
    if k_cache.shape[-1] != 576:
        raise ConfigError(
            f"k_cache has shape {tuple(k_cache.shape)}: rows of 576 numbers are meant here",
            hint="rope-aware rows of 640 bytes: mlagen.ops.mla_decode(.., kv_scales=..)",
        )
    if len(q.shape) != 4:
        raise ConfigError(f"q has shape {tuple(q.shape)}, not (batch, s_q, heads, 576)")
    # One new token sees all keys under either mask: the same kernel.
    mask = "causal" if causal or q.shape[1] == 1 else "null"
    kernel = decode_kernel(q, k_cache, mask=mask, q_len=q.shape[1])
    if meta.plan is None:
        if torch.cuda.is_current_stream_capturing():
            raise ConfigError(
                "the first call with a schedule reads the lengths, which a graph cannot capture",
                hint="call once before the capture, as a warm-up",
            )
        meta.plan, meta.have_initialized = kernel.plan(cache_seqlens, device=q.device), True
    scale, kv_scale, q_scale = scales
    out, lse = kernel(
        q.contiguous(), k_cache, block_table.contiguous(), cache_seqlens, scale=scale,
        plan=meta.plan, kv_scale=kv_scale, q_scale=q_scale,
    )  # fmt: skip
    # One kernel: it leaves NaN and +inf as they are and turns -inf around.
    return out, lse.nan_to_num_(nan=float("nan"), posinf=float("inf"), neginf=float("inf"))


def _refused(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{name}: dense prefill is not made here")

    function.__name__ = name
    function.__doc__ = "UnsupportedError: dense prefill is not made here."
    return function


flash_attn_varlen_func = _refused("flash_attn_varlen_func")
flash_attn_varlen_qkvpacked_func = _refused("flash_attn_varlen_qkvpacked_func")
flash_attn_varlen_kvpacked_func = _refused("flash_attn_varlen_kvpacked_func")


def install() -> None:
    """Registers this module as `flash_mla`. ConfigError where another one is imported already."""
    held = sys.modules.get(NAME)
    if held is not None and held is not sys.modules[__name__]:
        raise ConfigError(
            "flash_mla is imported already, and it is another one",
            hint="install() goes before the first `import flash_mla`",
        )
    sys.modules[NAME] = sys.modules[__name__]
