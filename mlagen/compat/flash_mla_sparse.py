"""FlashMLA's sparse attention, its arguments over mlagen's kernels; `flash_mla` has the names."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_sparse.call import SparseCall
from mlagen.ops.torch_sparse import decode_kernel, prefill_kernel

EMPTY_LSE = "+inf"  # of a query without keys
# FlashMLA takes rows of bytes by any name of a byte.
BYTES = ("torch.uint8", "torch.int8")


def flash_mla_sparse_fwd(
    q: Any,
    kv: Any,
    indices: Any,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Any = None,
    topk_length: Any = None,
) -> tuple[Any, Any, Any]:
    """(out [s_q, H, 512] bf16, max_logits and lse [s_q, H] fp32) of sparse prefill, natural
    logarithms without the sink; a query without keys has 0, -inf and +inf.

    `q` [s_q, H, 576 or 512] bf16, `kv` [s_kv, 1, 576 or 512] bf16, or [s_kv, 1, 656 or 528] bytes;
    `indices` [s_q, 1, topk] int32, of which those below 0 and from s_kv on name nothing;
    `attn_sink` [H] fp32; `topk_length` [s_q] int32. Any number of heads up to 128 and any topk. A
    `q` with gaps is copied.

    Raises ConfigError for what no kernel takes, UnsupportedError for queries of e4m3.
    """
    if d_v != 512:
        raise ConfigError(f"d_v={d_v} is not supported", hint="d_v=512")
    for name, tensor in (("q", q), ("kv", kv), ("indices", indices)):
        if len(tensor.shape) != 3:
            raise ConfigError(f"{name} has shape {tuple(tensor.shape)}: it has three dimensions")
    for name, tensor in (("kv", kv), ("indices", indices)):
        if tensor.shape[1] != 1:
            raise ConfigError(
                f"{name} has shape {tuple(tensor.shape)}: {tensor.shape[1]} KV heads",
                hint="latent rows are of one KV head",
            )
    rows = _bytes(kv[:, 0])
    _check_queries("flash_mla_sparse_fwd", q)
    call = SparseCall(
        (q.contiguous(), rows, indices[:, 0], topk_length, attn_sink, None),
        (None, None, None),
        (float(sm_scale), 1.0, 1.0),
        EMPTY_LSE,
        checked=False,
    )
    out, lse, max_logits = prefill_kernel(q, rows).enqueue(call)
    return out, max_logits, lse


def sparse_decode(
    q: Any,
    k_cache: Any,
    indices: Any,
    softmax_scale: float,
    descale_k: float,
    *,
    is_fp8_kvcache: bool,
    more: dict[str, Any],
) -> tuple[Any, Any]:
    """`flash_mla_with_kvcache` with `indices`; `more`: attn_sink, extra_k_cache,
    extra_indices_in_kvcache, topk_length and extra_topk_length."""
    for name, tensor in (("q", q), ("k_cache", k_cache)):
        if len(tensor.shape) != 4:
            raise ConfigError(f"{name} has shape {tuple(tensor.shape)}: it has four dimensions")
    if len(indices.shape) != 3:
        raise ConfigError(f"indices has shape {tuple(indices.shape)}, not (batch, s_q, topk)")
    cache, extra = _bytes(k_cache), more["extra_k_cache"]
    if is_fp8_kvcache == (str(cache.dtype) == "torch.bfloat16"):
        raise ConfigError(
            f"is_fp8_kvcache={is_fp8_kvcache} with a cache of {k_cache.dtype}",
            hint="rows of bytes with is_fp8_kvcache=True, bfloat16 with False",
        )
    own = "extra_indices_in_kvcache", "extra_topk_length"
    for name in own if extra is None else own[:1]:
        if (more[name] is None) != (extra is None):
            what = "is given, but extra_k_cache is not" if extra is None else "is missing"
            raise ConfigError(f"{name} {what}", hint="both go with extra_k_cache")
    _check_queries("flash_mla_with_kvcache", q)
    kernel = decode_kernel(q, cache, indices, extra=extra is not None)
    tensors = (
        q.contiguous(), cache, _even(indices), more["topk_length"], more["attn_sink"], None,
        None, None,
        None if extra is None else _bytes(extra),
        None if extra is None else _even(more["extra_indices_in_kvcache"]),
        more["extra_topk_length"], None,
    )  # fmt: skip
    scales = (softmax_scale, descale_k, 1.0)
    out, lse = kernel.enqueue(SparseCall(tensors, (None, None), scales, EMPTY_LSE, checked=False))
    return out, lse


def _check_queries(name: str, q: Any) -> None:
    """UnsupportedError for queries of e4m3: these arguments have no scale for them."""
    if str(q.dtype) == "torch.float8_e4m3fn":
        raise UnsupportedError(
            f"{name}: q has dtype {q.dtype}",
            hint="bfloat16; mlagen.ops.mla_sparse_prefill and mla_sparse_decode take float8_e4m3fn "
            "with q_scale=",
        )


def _bytes(cache: Any) -> Any:
    """Rows of bytes as e4m3, whatever type they have."""
    return cache.view(torch.float8_e4m3fn) if str(cache.dtype) in BYTES else cache


def _even(lists: Any) -> Any:
    """Lists [batch, s_q, topk] that lie equally far apart: a copy where they do not."""
    if len(lists.shape) != 3:
        return lists
    (_, tokens, _), (entry, token, _) = lists.shape, lists.stride()
    return lists if tokens == 1 or entry == tokens * token else lists.contiguous()
