"""A call of MLA decode as users write it: its names stand here, for all ways to make one."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlagen.attention.calls import taking

TENSORS = ("q", "cache", "block_table", "cache_lengths", "kv_scales", "q_scales")  # of a call


class DecodeCall(NamedTuple):
    """What a call is given. `tensors`: in the order of `TENSORS`, without those at the end
    that are not there; `scales`: scale, kv_scale, q_scale."""

    tensors: tuple[Any, ...]
    scales: tuple[float, float, float]
    plan: Any
    out: Any
    lse: Any
    checked: bool

    def of(self, plan: Any) -> DecodeCall:
        """The same with this plan. `_replace` takes twice as long."""
        return DecodeCall(self.tensors, self.scales, plan, self.out, self.lse, self.checked)


def decode_call(
    q: Any,
    cache: Any,
    block_table: Any,
    cache_lengths: Any,
    *,
    scale: float,
    kv_scale: float = 1.0,
    q_scale: float = 1.0,
    kv_scales: Any = None,
    q_scales: Any = None,
    plan: Any = None,
    out: Any = None,
    lse: Any = None,
    checked: bool = False,
) -> DecodeCall:
    """The call of these arguments; `MlaDecodeKernel.run` says what they are."""
    tensors: tuple[Any, ...] = (q, cache, block_table, cache_lengths)
    if q_scales is not None:
        tensors = (*tensors, kv_scales, q_scales)
    elif kv_scales is not None:
        tensors = (*tensors, kv_scales)
    return DecodeCall(tensors, (scale, kv_scale, q_scale), plan, out, lse, checked)


takes_call = taking(decode_call)  # a method of a `DecodeCall` as one of its arguments
