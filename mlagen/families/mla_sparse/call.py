"""Calls of sparse MLA as users write them: their names stand here, for all ways to make one."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlagen.attention.calls import taking

# Tensors of a call in the order in which `SparseCall` has them.
PREFILL_TENSORS = ("q", "cache", "indices", "topk_length", "sink", "kv_scales")
DECODE_TENSORS = (
    *PREFILL_TENSORS, "positions", "first_position", "extra_cache", "extra_indices",
    "extra_topk_length", "extra_kv_scales",
)  # fmt: skip


class SparseCall(NamedTuple):
    """What a call is given; None stands for what is not. `tensors`: in the order of
    `PREFILL_TENSORS` or `DECODE_TENSORS`; `outputs`: out, LSE and, of prefill, largest scores;
    `scales`: scale, kv_scale, q_scale."""

    tensors: tuple[Any, ...]
    outputs: tuple[Any, ...]
    scales: tuple[float, float, float]
    empty_lse: str
    checked: bool
    splits: int | None = None
    split_keys: int | None = None


def prefill_call(
    q: Any,
    cache: Any,
    indices: Any,
    *,
    scale: float,
    topk_length: Any = None,
    sink: Any = None,
    kv_scales: Any = None,
    kv_scale: float = 1.0,
    q_scale: float = 1.0,
    out: Any = None,
    lse: Any = None,
    max_logits: Any = None,
    empty_lse: str = "-inf",
    checked: bool = False,
) -> SparseCall:
    """The call of these arguments; `MlaSparsePrefillKernel.run` says what they are."""
    tensors = (q, cache, indices, topk_length, sink, kv_scales)
    scales = (scale, kv_scale, q_scale)
    return SparseCall(tensors, (out, lse, max_logits), scales, empty_lse, checked)


def decode_call(
    q: Any,
    cache: Any,
    indices: Any,
    *,
    scale: float,
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
    out: Any = None,
    lse: Any = None,
    empty_lse: str = "-inf",
    checked: bool = False,
) -> SparseCall:
    """The call of these arguments; `MlaSparseDecodeKernel.run` says what they are."""
    tensors = (
        q, cache, indices, topk_length, sink, kv_scales, positions, first_position, extra_cache,
        extra_indices, extra_topk_length, extra_kv_scales,
    )  # fmt: skip
    scales = (scale, kv_scale, q_scale)
    return SparseCall(tensors, (out, lse), scales, empty_lse, checked, splits, split_keys)


takes_prefill = taking(prefill_call)  # a method of a `SparseCall` as one of its arguments
takes_decode = taking(decode_call)
