"""A call of MLA decode in AITER's arguments as users write it: its names stand here."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlagen.attention.calls import taking
from mlagen.errors import ConfigError

TENSORS = (
    "q", "cache", "qo_indptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens", "work_indptr",
    "work_info_set",
)  # fmt: skip
REDUCTION = ("reduce_indptr", "reduce_final_map", "reduce_partial_map")


class AiterCall(NamedTuple):
    """What a call is given. `tensors`: in the order of `TENSORS`; `scales`: q_scale and kv_scale,
    tensors or None; `reduction`: of `REDUCTION`, or None; `parts`: partial_o and partial_lse, or
    None."""

    tensors: tuple[Any, ...]
    scale: float
    scales: tuple[Any, Any]
    max_seqlen_q: int | None
    reduction: tuple[Any, ...] | None
    parts: tuple[Any, Any] | None
    table: Any
    out: Any
    lse: Any
    checked: bool


def aiter_call(
    q: Any,
    kv_buffer: Any,
    qo_indptr: Any,
    kv_indptr: Any,
    kv_page_indices: Any,
    kv_last_page_lens: Any,
    work_indptr: Any,
    work_info_set: Any,
    *,
    scale: float,
    q_scale: Any = None,
    kv_scale: Any = None,
    max_seqlen_q: int | None = None,
    reduce_indptr: Any = None,
    reduce_final_map: Any = None,
    reduce_partial_map: Any = None,
    partial_o: Any = None,
    partial_lse: Any = None,
    work_meta_data: Any = None,
    out: Any = None,
    lse: Any = None,
    checked: bool = False,
) -> AiterCall:
    """The call of these arguments; `AiterDecodeKernel.run` says what they are. ConfigError where
    one of several that belong together is missing."""
    tensors = (q, kv_buffer, qo_indptr, kv_indptr, kv_page_indices, kv_last_page_lens, work_indptr,
               work_info_set)  # fmt: skip
    maps = _all_or_none(REDUCTION, (reduce_indptr, reduce_final_map, reduce_partial_map))
    parts = _all_or_none(("partial_o", "partial_lse"), (partial_o, partial_lse))
    if maps is None and parts is None:
        raise ConfigError(
            "neither reduce_indptr, reduce_final_map and reduce_partial_map are given nor "
            "partial_o and partial_lse",
            hint="with the former parts are merged; with the latter they are left there",
        )
    scales = q_scale, kv_scale
    return AiterCall(
        tensors, scale, scales, max_seqlen_q, maps, parts, work_meta_data, out, lse, checked
    )


takes_call = taking(aiter_call)


def _all_or_none(names: tuple[str, ...], given: tuple[Any, ...]) -> Any:
    there = [name for name, value in zip(names, given, strict=True) if value is not None]
    if there and len(there) < len(names):
        missing = ", ".join(name for name in names if name not in there)
        raise ConfigError(f"{', '.join(there)} given, but not {missing}")
    return given if there else None
