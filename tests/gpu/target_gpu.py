"""What the tests on a GPU share: whether there is one of their target."""

from __future__ import annotations

from mlagen.errors import MissingError
from mlagen.launch import CudaLauncher
from mlagen.launch.capability import written
from mlagen.targets.nvidia.limits import Nvidia
from mlagen.targets.nvidia.ptxas import find_ptxas
from mlagen.targets.sm_90a.limits import SM_90A


def why_not(limits: Nvidia = SM_90A) -> str:
    """Why kernels for a target, Hopper's without it, cannot be launched here; "" where they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch finds no NVIDIA GPU"
    if torch.cuda.get_device_capability() != limits.compute_capability:
        wanted = written(limits.compute_capability)
        return f"{torch.cuda.get_device_name()} is not of compute capability {wanted}"
    try:
        find_ptxas(limits.name)
        _ = CudaLauncher().driver
    except MissingError as error:
        return error.message
    return ""
