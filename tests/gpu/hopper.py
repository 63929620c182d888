"""What the tests on a Hopper GPU share: whether there is one."""

from __future__ import annotations

from mlagen.errors import MissingError
from mlagen.launch import CudaLauncher
from mlagen.targets.nvidia.ptxas import find_ptxas
from mlagen.targets.sm_90a.limits import SM_90A


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
