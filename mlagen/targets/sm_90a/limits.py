"""Capacities of sm_90a (Hopper: H100, H200).

Numbers that a schedule, the code generator and the checkers may all read. How many multiprocessors
a GPU has, its memory and its clocks are properties of the device and are not here. What sm_100a has
too stands in `mlagen.targets.nvidia.limits`.

Sources: CUDA C++ Programming Guide, technical specifications of compute capability 9.0; PTX ISA.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.targets.nvidia.limits import Nvidia


@dataclass(frozen=True)
class Sm90a(Nvidia):
    """One multiprocessor (SM) of sm_90a."""

    name: str = "sm_90a"
    compute_capability: tuple[int, int] = (9, 0)
    ptx_version: tuple[int, int] = (8, 0)  # has wgmma and setmaxnreg


SM_90A = Sm90a()
