"""Arrays of the host as tensors of torch's GPU, and back; bf16 and e4m3 by their bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

# Stored as integers of this type: numpy has no code for these types of torch.
_BITS = {"bfloat16": ("int16", ml_dtypes.bfloat16),
         "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn)}  # fmt: skip


def to_gpu(array: npt.NDArray[Any]) -> Any:
    """The array on torch's current GPU."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    for name, (whole, own) in _BITS.items():
        if array.dtype == own:
            bits = torch.from_numpy(np.ascontiguousarray(array).view(whole))
            return bits.cuda().view(getattr(torch, name))
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def to_host(tensor: Any) -> npt.NDArray[Any]:
    """The tensor as an array of the host. Waits for what was enqueued before."""
    import torch

    known = _BITS.get(str(tensor.dtype).removeprefix("torch."))
    if known is None:
        return np.asarray(tensor.cpu().numpy())
    whole, own = known
    return np.asarray(tensor.contiguous().view(getattr(torch, whole)).cpu().numpy().view(own))
