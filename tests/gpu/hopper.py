"""What the tests on a Hopper GPU share: whether there is one, and how its tensors come and go."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.codegen.ptxas import find_ptxas
from mlagen.errors import MissingError
from mlagen.launch import CudaLauncher
from mlagen.targets import SM_90A


def why_not() -> str:
    """Why Hopper kernels cannot be launched here; "" where they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch finds no NVIDIA GPU"
    if torch.cuda.get_device_capability() != SM_90A.compute_capability:
        return f"{torch.cuda.get_device_name()} is not of compute capability 9.0"
    try:
        find_ptxas("sm_90a")
        _ = CudaLauncher().driver
    except MissingError as error:
        return error.message
    return ""


def to_gpu(array: npt.NDArray[Any]) -> Any:
    """The array on the GPU; bf16 and e4m3 by their bits."""
    import torch

    if array.dtype == np.dtype(ml_dtypes.float8_e4m3fn):
        bits = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8))
        return bits.cuda().view(torch.float8_e4m3fn)

    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        bits = torch.from_numpy(np.ascontiguousarray(array).view(np.int16))
        return bits.cuda().view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def to_host(tensor: Any) -> npt.NDArray[Any]:
    """The tensor as an array; bf16 by its bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        bits = tensor.contiguous().view(torch.int16).cpu().numpy()
        return bits.view(ml_dtypes.bfloat16)
    return tensor.cpu().numpy()
