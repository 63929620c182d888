"""Calls for a process of their own, which finds them by this module's name."""

from __future__ import annotations


def spin(cycles: int) -> None:
    """A kernel that keeps the GPU busy; a bounded one, should nobody stop it."""
    import torch

    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()


def name_of_device() -> str:
    import torch

    spin(1000)
    return str(torch.cuda.get_device_name())
