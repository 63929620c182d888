"""Which kernel an operator of torch takes: that for the GPU which holds its tensors. Importing this
module imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from mlagen.errors import UnsupportedError
from mlagen.launch.capability import amd_target, target_of
from mlagen.ops.kernel_names import Kernels


@cache
def _target_at(ordinal: int) -> str:
    """The target of GPU `ordinal`, which torch calls "cuda" under ROCm as well."""
    if getattr(getattr(torch, "version", None), "hip", None):
        properties = torch.cuda.get_device_properties(ordinal)
        return amd_target(properties.gcnArchName, _named(ordinal))
    return target_of(torch.cuda.get_device_capability(ordinal), _named(ordinal))


def _named(ordinal: int) -> str:
    return f"GPU {ordinal}, {torch.cuda.get_device_name(ordinal)},"


def kernel_for(q: Any, operator: str, operators: Mapping[str, Kernels]) -> str:
    """The name of the operator's kernel for the GPU of the tensor `q`, which is the first one's for
    a tensor elsewhere: its launch is refused, with the reason. `operators`: the family's by name.

    Raises UnsupportedError for a GPU of no target, and of one that the operator has no kernel for.
    """
    kernels = operators[operator]
    ordinal = q.get_device()
    target = _target_at(ordinal) if ordinal >= 0 else ""
    if not target:
        return next(iter(kernels.values()))
    if target not in kernels:
        others = [name for name, each in operators.items() if target in each]
        there = f"; for {target} there is {', '.join(others)}" if others else ""
        raise UnsupportedError(
            f"{operator} has no kernel for {target}, which {_named(ordinal)} is",
            hint=f"{operator} has kernels for {', '.join(kernels)}{there}",
        )
    return kernels[target]
