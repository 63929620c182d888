"""What an SM of sm_90a and one of sm_100a have in common.

`Nvidia.warp_size` and the like, read from the class, are the numbers that all of them share. What
differs is a field of the same name in the table of each target.

Sources: CUDA C++ Programming Guide, technical specifications of compute capabilities 9.0 and 10.0,
which agree on these (below: CC); PTX ISA; CUDA driver API, cuTensorMapEncodeTiled (below: tensor
maps).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Nvidia:
    """One multiprocessor (SM). Sizes in bytes unless the name says otherwise."""

    name: str
    compute_capability: tuple[int, int]  # code for the target runs on exactly this (PTX ISA)
    ptx_version: tuple[int, int]  # first .version with the target's own instructions (PTX ISA)
    ptx_version_clusters: tuple[int, int] = (8, 1)  # first one with st.async (PTX ISA)

    warp_size: int = 32
    warpgroup_warps: int = 4  # first warp index a multiple of 4 (PTX ISA, wgmma and tcgen05.ld)
    max_block_threads: int = 1024  # CC

    smem_bytes: int = 232448  # 227 KiB a block, as dynamic shared memory (CC)
    smem_per_sm: int = 233472  # 228 KiB, of all blocks together (CC)
    smem_reserved: int = 1024  # of each block, by the system (CUDA C++ Programming Guide)

    tmem_columns: int = 0  # of tensor memory; 0: there is none
    tmem_alloc_min: int = 0  # columns

    registers_per_sm: int = 65536  # 32 bits each (CC)
    registers_per_thread: int = 255  # CC
    warp_granule: int = 4  # a block's warps are allocated in fours (CUDA occupancy calculator)
    register_granule: int = 8  # registers of a thread are allocated in eights (CC)
    setmaxnreg_min: int = 24  # PTX ISA, setmaxnreg
    setmaxnreg_max: int = 256  # PTX ISA, setmaxnreg
    setmaxnreg_step: int = 8  # PTX ISA, setmaxnreg

    named_barriers: int = 16  # ids 0..15; `bar.sync 0` is the one of the block (PTX ISA, bar)
    mbarrier_bytes: int = 8  # also its alignment (PTX ISA, mbarrier)
    mbarrier_arrivals_max: int = 2**20 - 1  # expected arrivals, at least 1 (PTX ISA, mbarrier)

    swizzle_modes: tuple[int, ...] = (0, 32, 64, 128)  # bytes of a swizzled row (tensor maps)
    tma_smem_align: int = 128  # SMEM side of a tensor copy (PTX ISA, cp.async.bulk.tensor)

    grid_max: tuple[int, int, int] = (2**31 - 1, 65535, 65535)  # blocks (CC)

    @classmethod
    def swizzle_align(cls, swizzle_bytes: int) -> int:
        """Alignment of an SMEM tile under that swizzle: the pattern's period, eight rows."""
        return 8 * swizzle_bytes if swizzle_bytes else cls.tma_smem_align

    def register_budget(self, threads: int) -> int:
        """Registers a thread gets when one block of `threads` has the SM: the count at entry."""
        return min(self.registers_per_thread, self.fair_share(max(threads, 1)))

    @classmethod
    def fair_share(cls, threads: int, blocks: int = 1) -> int:
        """An SM's registers a thread of so many blocks: in eights, and for warps in fours."""
        allocated = cls.warp_size * cls.warp_granule  # threads
        fair = cls.registers_per_sm // (-(-threads // allocated) * allocated * blocks)
        return fair // cls.register_granule * cls.register_granule
