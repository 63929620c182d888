"""Capacities of sm_90a (Hopper: H100, H200).

Numbers that a schedule, the code generator and the checkers may all read. How many multiprocessors
a GPU has, its memory and its clocks are properties of the device and are not here.

Sources: CUDA C++ Programming Guide, technical specifications of compute capability 9.0 (below:
CC 9.0); PTX ISA; CUDA driver API, cuTensorMapEncodeTiled (below: tensor maps).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sm90a:
    """One multiprocessor (SM) of sm_90a. Sizes in bytes unless the name says otherwise."""

    name: str = "sm_90a"
    compute_capability: tuple[int, int] = (9, 0)  # code for sm_90a runs on exactly this (PTX ISA)
    ptx_version: tuple[int, int] = (8, 0)  # first .version with wgmma and setmaxnreg (PTX ISA)
    ptx_version_clusters: tuple[int, int] = (8, 1)  # first one with st.async (PTX ISA)

    warp_size: int = 32
    warpgroup_warps: int = 4  # first warp index a multiple of 4 (PTX ISA, wgmma)
    max_block_threads: int = 1024  # CC 9.0

    smem_bytes: int = 232448  # 227 KiB a block, as dynamic shared memory (CC 9.0)

    smem_per_sm: int = 233472  # 228 KiB, of all blocks together (CC 9.0)
    smem_reserved: int = 1024  # of each block, by the system (CUDA C++ Programming Guide, 9.0)

    registers_per_sm: int = 65536  # 32 bits each (CC 9.0)
    registers_per_thread: int = 255  # CC 9.0
    register_granule: int = 8  # registers of a thread are allocated in eights (CC 9.0)
    setmaxnreg_min: int = 24  # PTX ISA, setmaxnreg
    setmaxnreg_max: int = 256  # PTX ISA, setmaxnreg
    setmaxnreg_step: int = 8  # PTX ISA, setmaxnreg

    named_barriers: int = 16  # ids 0..15; `bar.sync 0` is the one of the block (PTX ISA, bar)
    mbarrier_bytes: int = 8  # also its alignment (PTX ISA, mbarrier)
    mbarrier_arrivals_max: int = 2**20 - 1  # expected arrivals, at least 1 (PTX ISA, mbarrier)

    wgmma_m: int = 64  # rows of one wgmma (PTX ISA, wgmma shapes)
    swizzle_modes: tuple[int, ...] = (0, 32, 64, 128)  # bytes of a swizzled row (tensor maps)
    tma_smem_align: int = 128  # SMEM side of a tensor copy (PTX ISA, cp.async.bulk.tensor)

    grid_max: tuple[int, int, int] = (2**31 - 1, 65535, 65535)  # blocks (CC 9.0)

    def swizzle_align(self, swizzle_bytes: int) -> int:
        """Alignment of an SMEM tile under that swizzle: the pattern's period, eight rows."""
        return 8 * swizzle_bytes if swizzle_bytes else self.tma_smem_align

    def register_budget(self, threads: int) -> int:
        """Registers a thread gets when one block of `threads` has the SM: the count at entry."""
        fair = self.registers_per_sm // max(threads, 1)
        return min(self.registers_per_thread, fair // self.register_granule * self.register_granule)


SM_90A = Sm90a()
