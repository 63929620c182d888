"""Operators of torch: how they are registered, and how they are called. Importing this module
imports torch.

torch takes 8 us to find a function in Python by its dispatcher. A call that nothing watches needs
none of that: it goes to the function at once. What compiles, traces, fakes, profiles, batches or
differentiates a call sees the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

# Not `torch.library.custom_op`: its wrappers in Python take several times as long as a call.
_LIBRARY = torch.library.Library("mlagen", "FRAGMENT")


class Operator:
    """`torch.ops.mlagen.NAME`, whose first two arguments are q and a cache."""

    def __init__(self, op: Any, function: Callable[..., Any]) -> None:
        self.op, self.function = op, function

    def __call__(self, q: Any, cache: Any, *others: Any) -> Any:
        if _watched is None or torch.compiler.is_compiling() or _watched(q, cache):
            return self.op(q, cache, *others)
        return self.function(q, cache, *others)


def registered(
    name: str, function: Callable[..., Any], fake: Callable[..., Any], schema: str
) -> Operator:
    """The operator `name` with its function for GPUs and the one that makes outputs' shapes."""
    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, function, "CUDA")
    torch.library.register_fake(f"mlagen::{name}", fake, lib=_LIBRARY)
    return Operator(getattr(torch.ops.mlagen, name).default, function)


def _watcher() -> Callable[[Any, Any], bool] | None:
    """Whether something watches a call of these tensors; None for a torch that does not tell."""
    try:
        inner, profiler = torch._C, torch.autograd.profiler
        modes, functions = inner._len_torch_dispatch_stack, inner._len_torch_function_stack
        transform, traced = inner._functorch.peek_interpreter_stack, inner._get_tracing_state
        grad, plain = torch.is_grad_enabled, torch.Tensor
        bool(modes() or functions() or transform() or traced() or profiler._is_profiler_enabled)
    except AttributeError:
        return None

    def watched(q: Any, cache: Any) -> bool:
        return bool(
            type(q) is not plain or type(cache) is not plain or not q.is_cuda
            or modes() or functions() or transform() is not None or traced() is not None
            or profiler._is_profiler_enabled
            or (grad() and (q.requires_grad or cache.requires_grad))
        )  # fmt: skip

    return watched


_watched = _watcher()
