"""Sparse MLA as operators of torch: `torch.ops.mlagen.mla_sparse_prefill` and `_decode`, which
torch.compile and graphs take. Importing this module imports torch."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.call import SparseCall
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.kernel import MlaSparseDecodeKernel, MlaSparsePrefillKernel
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import format_of
from mlagen.ops.gpu_kernel import kernel_for
from mlagen.ops.kernel_names import SPARSE
from mlagen.ops.torch_registration import registered

TYPES = {"torch.bfloat16": "bf16", "torch.float8_e4m3fn": "fp8_e4m3"}


@cache
def _built(kernel: str, config: MlaSparsePrefillConfig | MlaSparseDecodeConfig) -> Any:
    """The callable of a kernel for a problem, built once."""
    from mlagen.app.build import callable_of
    from mlagen.tune.lookup import build_best

    artifact, choice = build_best(kernel, config.to_fields())
    made = callable_of(artifact)
    made.choice = str(choice)
    return made


@cache
def _prefill_of(
    kernel: str, heads: int, d_qk: int, dtype: Any, cached: Any, columns: int,
    side: tuple[int, ...] | None, compute: str,
) -> MlaSparsePrefillKernel:  # fmt: skip
    made = _built(
        kernel,
        MlaSparsePrefillConfig(
            heads, d_qk=d_qk, dtype=_type("q", dtype), rows=_rows(d_qk, cached, columns, side),
            compute=compute,
        ),
    )  # fmt: skip
    assert isinstance(made, MlaSparsePrefillKernel)
    return made


@cache
def _decode_of(
    kernel: str,
    query: tuple[int, ...],
    dtype: Any,
    cached: Any,
    columns: int,
    side: tuple[int, ...] | None,
    has: tuple[bool, bool, bool],
    compute: str,
) -> MlaSparseDecodeKernel:
    q_len, heads, d_qk = query
    shared_list, extra, causal = has
    made = _built(
        kernel,
        MlaSparseDecodeConfig(
            heads, d_qk=d_qk, dtype=_type("q", dtype), rows=_rows(d_qk, cached, columns, side),
            q_len=q_len, shared_list=shared_list, extra=extra, causal=causal, compute=compute,
        ),
    )  # fmt: skip
    assert isinstance(made, MlaSparseDecodeKernel)
    return made


def _type(name: str, dtype: Any) -> str:
    if str(dtype) not in TYPES:
        raise ConfigError(f"{name} has dtype {dtype}", hint=f"dtypes: {', '.join(TYPES)}")
    return TYPES[str(dtype)]


def _rows(d_qk: int, cached: Any, columns: int, side: tuple[int, ...] | None) -> str:
    return format_of(d_qk, _type("cache", cached), columns, side)


def _side(scales: Any) -> tuple[int, ...] | None:
    """What tells formats apart of scales beside a cache: their shape, but for how many rows."""
    return None if scales is None else (0, *scales.shape[1:])


def prefill_kernel(
    q: Any, kv_cache: Any, kv_scales: Any = None, compute: str = "bf16"
) -> MlaSparsePrefillKernel:
    """The kernel for tensors of these shapes and the GPU of `q`, built at its first use. `compute`:
    what its products are of.
    ConfigError for a problem that none solves, UnsupportedError where that GPU has none for it."""
    if len(q.shape) != 3:
        raise ConfigError(f"q has shape {tuple(q.shape)}, not (rows, heads, d_qk)")
    _, heads, d_qk = q.shape
    return _prefill_of(
        kernel_for(q, "mla_sparse_prefill", SPARSE), heads, d_qk, q.dtype, kv_cache.dtype,
        kv_cache.shape[-1], _side(kv_scales), compute,
    )  # fmt: skip


def decode_kernel(
    q: Any,
    kv_cache: Any,
    indices: Any,
    kv_scales: Any = None,
    *,
    extra: bool = False,
    causal: bool = False,
    compute: str = "bf16",
) -> MlaSparseDecodeKernel:
    """The kernel for tensors of these shapes and the GPU of `q`, built at its first use. `compute`:
    what its products are of.
    ConfigError for a problem that none solves, UnsupportedError where that GPU has none for it."""
    if len(q.shape) != 4:
        raise ConfigError(f"q has shape {tuple(q.shape)}, not (batch, q_len, heads, d_qk)")
    has = len(indices.shape) == 2, extra, causal
    return _decode_of(
        kernel_for(q, "mla_sparse_decode", SPARSE), tuple(q.shape[1:]), q.dtype, kv_cache.dtype,
        kv_cache.shape[-1], _side(kv_scales), has, compute,
    )  # fmt: skip


def mla_sparse_prefill(
    q: Any,
    kv_cache: Any,
    indices: Any,
    scale: float,
    *,
    topk_length: Any = None,
    sink: Any = None,
    kv_scales: Any = None,
    kv_scale: float = 1.0,
    q_scale: float = 1.0,
    empty_lse: str = "-inf",
    compute: str = "bf16",
) -> tuple[Any, Any, Any]:
    """Attention of `q` over listed rows: (output, log-sum-exp, largest scores); see
    `MlaSparsePrefillKernel.run`. The kernel is chosen by the GPU that holds `q`, shapes and types,
    the rows' format among them, and by `compute`, what products are of, and built at its first
    use."""
    found = PREFILL(
        q, kv_cache, indices, scale, topk_length, sink, kv_scales, kv_scale, q_scale, empty_lse,
        compute,
    )  # fmt: skip
    return found[0], found[1], found[2]


def mla_sparse_decode(
    q: Any,
    kv_cache: Any,
    indices: Any,
    scale: float,
    *,
    topk_length: Any = None,
    sink: Any = None,
    positions: Any = None,
    first_position: Any = None,
    extra_cache: Any = None,
    extra_indices: Any = None,
    extra_topk_length: Any = None,
    kv_scales: Any = None,
    extra_kv_scales: Any = None,
    kv_scale: float = 1.0,
    q_scale: float = 1.0,
    splits: int | None = None,
    split_keys: int | None = None,
    empty_lse: str = "-inf",
    compute: str = "bf16",
) -> tuple[Any, Any]:
    """Attention of new tokens over listed rows: (output, log-sum-exp); see
    `MlaSparseDecodeKernel.run`. The kernel is chosen by the GPU that holds `q`, shapes, types and
    what is given, and by `compute`, what products are of, and built at its first use."""
    found = DECODE(
        q, kv_cache, indices, scale, topk_length, sink, kv_scales, positions, first_position,
        extra_cache, extra_indices, extra_topk_length, extra_kv_scales, kv_scale, q_scale,
        empty_lse, splits, split_keys, compute,
    )  # fmt: skip
    return found[0], found[1]


def _prefill(
    q: Any, cache: Any, indices: Any, scale: float, topk_length: Any, sink: Any, kv_scales: Any,
    kv_scale: float, q_scale: float, empty_lse: str, compute: str = "bf16",
) -> tuple[Any, ...]:  # fmt: skip
    tensors = (q, cache, indices, topk_length, sink, kv_scales)
    scales = (scale, kv_scale, q_scale)
    call = SparseCall(tensors, (None, None, None), scales, empty_lse, False)
    return prefill_kernel(q, cache, kv_scales, compute).enqueue(call)


def _decode(
    q: Any, cache: Any, indices: Any, scale: float, topk_length: Any, sink: Any, kv_scales: Any,
    positions: Any, first_position: Any, extra_cache: Any, extra_indices: Any,
    extra_topk_length: Any, extra_kv_scales: Any, kv_scale: float, q_scale: float, empty_lse: str,
    splits: int | None, split_keys: int | None = None, compute: str = "bf16",
) -> tuple[Any, ...]:  # fmt: skip
    tensors = (
        q, cache, indices, topk_length, sink, kv_scales, positions, first_position, extra_cache,
        extra_indices, extra_topk_length, extra_kv_scales,
    )  # fmt: skip
    kernel = decode_kernel(
        q, cache, indices, kv_scales, extra=extra_cache is not None,
        causal=positions is not None, compute=compute,
    )  # fmt: skip
    scales = (scale, kv_scale, q_scale)
    return kernel.enqueue(
        SparseCall(tensors, (None, None), scales, empty_lse, False, splits, split_keys)
    )


def _prefill_shapes(q: Any, *_: Any) -> tuple[Any, Any, Any]:
    rows, heads, _width = q.shape
    out = q.new_empty((rows, heads, 512), dtype=torch.bfloat16)
    lse, max_logits = (q.new_empty((rows, heads), dtype=torch.float32) for _ in range(2))
    return out, lse, max_logits


def _decode_shapes(q: Any, *_: Any) -> tuple[Any, Any]:
    batch, q_len, heads, _width = q.shape
    out = q.new_empty((batch, q_len, heads, 512), dtype=torch.bfloat16)
    return out, q.new_empty((batch, heads, q_len), dtype=torch.float32)


_TENSORS = "Tensor q, Tensor cache, Tensor indices, float scale, Tensor? topk_length, "
_TENSORS += "Tensor? sink, Tensor? kv_scales"
_NUMBERS = "float kv_scale, float q_scale, str empty_lse"
_MORE = "Tensor? positions, Tensor? first_position, Tensor? extra_cache, Tensor? extra_indices, "
_MORE += "Tensor? extra_topk_length, Tensor? extra_kv_scales"
PREFILL = registered(
    "mla_sparse_prefill",
    _prefill,
    _prefill_shapes,
    f"({_TENSORS}, {_NUMBERS}, str compute='bf16') -> (Tensor, Tensor, Tensor)",
)
DECODE = registered(
    "mla_sparse_decode",
    _decode,
    _decode_shapes,
    f"({_TENSORS}, {_MORE}, {_NUMBERS}, int? splits, int? split_keys=None, str compute='bf16') -> "
    "(Tensor, Tensor)",
)
