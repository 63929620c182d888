"""Capacities of sm_100a (Blackwell: B200, GB200).

Numbers that checkers, the emulator and whatever generates code may all read. How many
multiprocessors a GPU has, its memory and its clocks are properties of the device and are not here.
What sm_90a has too stands in `mlagen.targets.nvidia.limits`.

Sources: CUDA C++ Programming Guide, technical specifications of compute capability 10.0 (below:
CC 10.0); PTX ISA 9.0, with its chapter on tcgen05.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.targets.nvidia.limits import Nvidia


@dataclass(frozen=True)
class Sm100a(Nvidia):
    """One multiprocessor (SM) of sm_100a."""

    name: str = "sm_100a"
    compute_capability: tuple[int, int] = (10, 0)
    ptx_version: tuple[int, int] = (8, 6)  # has tcgen05

    tmem_lanes: int = 128  # PTX ISA, "Tensor Memory"
    tmem_columns: int = 512  # of four bytes, of all blocks of an SM together (PTX ISA)
    tmem_alloc_min: int = 32  # columns; powers of two from here on (PTX ISA, tcgen05.alloc)

    mma_columns_max: int = 256  # N of one tcgen05.mma (PTX ISA, tcgen05 matrix shapes)
    mma_depth_bytes: int = 32  # K of one dense tcgen05.mma (PTX ISA, tcgen05 matrix shapes)


SM_100A = Sm100a()
