"""Capacities of sm_100a (Blackwell: B200, GB200).

Numbers that checkers, the emulator and whatever generates code may all read. How many
multiprocessors a GPU has, its memory and its clocks are properties of the device and are not here.

Sources: CUDA C++ Programming Guide, technical specifications of compute capability 10.0 (below:
CC 10.0); PTX ISA 9.0, with its chapter on tcgen05; CUDA driver API, cuTensorMapEncodeTiled (below:
tensor maps).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sm100a:
    """One multiprocessor (SM) of sm_100a. Sizes in bytes unless the name says otherwise."""

    name: str = "sm_100a"
    compute_capability: tuple[int, int] = (10, 0)  # code for sm_100a runs on exactly this (PTX ISA)
    ptx_version: tuple[int, int] = (8, 6)  # first .version with tcgen05 (PTX ISA)
    ptx_version_clusters: tuple[int, int] = (8, 6)  # has st.async too (PTX ISA)

    warp_size: int = 32
    warpgroup_warps: int = 4  # tcgen05.ld and .st: the warp's number modulo 4 (PTX ISA)
    max_block_threads: int = 1024  # CC 10.0
    cluster_max: int = 16  # blocks; over 8 the kernel has to allow it (CC 10.0)

    smem_bytes: int = 232448  # 227 KiB a block, as dynamic shared memory (CC 10.0)
    smem_per_sm: int = 233472  # 228 KiB, of all blocks together (CC 10.0)
    smem_reserved: int = 1024  # of each block, by the system (CUDA C++ Programming Guide)

    tmem_lanes: int = 128  # PTX ISA, "Tensor Memory"
    tmem_columns: int = 512  # of four bytes, of all blocks of an SM together (PTX ISA)
    tmem_alloc_min: int = 32  # columns; powers of two from here on (PTX ISA, tcgen05.alloc)
    tmem_warp_lanes: int = 32  # that a warp's tcgen05.ld and .st reach (PTX ISA)

    registers_per_sm: int = 65536  # 32 bits each (CC 10.0)
    registers_per_thread: int = 255  # CC 10.0
    register_granule: int = 8  # registers of a thread are allocated in eights (CC 10.0)
    setmaxnreg_min: int = 24  # PTX ISA, setmaxnreg
    setmaxnreg_max: int = 256  # PTX ISA, setmaxnreg
    setmaxnreg_step: int = 8  # PTX ISA, setmaxnreg

    named_barriers: int = 16  # ids 0..15; `bar.sync 0` is the one of the block (PTX ISA, bar)
    mbarrier_bytes: int = 8  # also its alignment (PTX ISA, mbarrier)
    mbarrier_arrivals_max: int = 2**20 - 1  # expected arrivals, at least 1 (PTX ISA, mbarrier)

    mma_columns_max: int = 256  # N of one tcgen05.mma (PTX ISA, tcgen05 matrix shapes)
    mma_depth_bytes: int = 32  # K of one dense tcgen05.mma (PTX ISA, tcgen05 matrix shapes)
    swizzle_modes: tuple[int, ...] = (0, 32, 64, 128)  # bytes of a swizzled row (tensor maps)
    tma_smem_align: int = 128  # SMEM side of a tensor copy (PTX ISA, cp.async.bulk.tensor)

    grid_max: tuple[int, int, int] = (2**31 - 1, 65535, 65535)  # blocks (CC 10.0)

    def register_budget(self, threads: int) -> int:
        """Registers a thread gets when one block of `threads` has the SM: the count at entry."""
        fair = self.registers_per_sm // max(threads, 1)
        return min(self.registers_per_thread, fair // self.register_granule * self.register_granule)


SM_100A = Sm100a()
