"""Capacities of gfx950 (CDNA4, MI350X / MI355X).

Numbers that a schedule, the code generator and the checkers may all read. Semantics (lane maps,
effects, hazards) are not here: the generator and the checkers each keep their own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gfx950:
    """One compute unit of gfx950. Sizes in bytes unless the name says otherwise."""

    name: str = "gfx950"
    elf_machine_flags: int = 0x4F  # EF_AMDGPU_MACH_AMDGCN_GFX950 (LLVM AMDGPUUsage)
    wave_size: int = 64  # lanes; CDNA has no wave32 (CDNA4 ISA guide, 2)
    simds_per_cu: int = 4  # AMD CDNA4 white paper
    vgprs_per_simd_lane: int = 512  # unified arch + acc registers (LLVM AMDGPUUsage, gfx90a+)
    vgpr_granule: int = 8  # allocation granule (LLVM AMDGPUUsage, gfx90a+)
    arch_vgprs_per_wave: int = 256  # v0..v255 addressable without accumulators (CDNA4 ISA)
    sgprs_per_wave: int = 102  # s0..s101 addressable (CDNA4 ISA)
    lds_bytes: int = 163840  # per workgroup and per CU (AMD CDNA4 white paper: 160 KiB)
    lds_granule_bytes: int = 1280  # allocation granule (LLVM AMDGPUUsage, gfx950)
    lds_banks: int = 64  # 4-byte banks (HipKittens phase measurements)
    lds_offset_bits: int = 16  # ds_* immediate offset (CDNA4 ISA, DS encoding)
    global_offset_max: int = 4095  # global_* immediate offset, 13 bits with sign (CDNA4 ISA)
    buffer_bytes_max: int = 0xFFFFFFFF  # num_records is 32 bits (CDNA4 ISA, buffer resource)
    vmcnt_max: int = 63  # 6-bit counter (CDNA4 ISA, S_WAITCNT)
    lgkmcnt_max: int = 15  # 4-bit counter (CDNA4 ISA, S_WAITCNT)
    expcnt_max: int = 7  # 3-bit counter (CDNA4 ISA, S_WAITCNT)
    branch_words: int = 32767  # 16-bit signed offset in words (CDNA4 ISA, SOPP)
    max_workgroup_threads: int = 1024  # LLVM AMDGPUUsage
    grid_most: int = 65535  # workgroups in y and in z (HIP, hipDeviceProp_t.maxGridSize)

    def waves_per_simd(self, vgprs: int) -> int:
        """Waves of `vgprs` registers (arch + acc) that fit one SIMD, at most 8."""
        granules = -(-max(vgprs, 1) // self.vgpr_granule) * self.vgpr_granule
        return min(8, self.vgprs_per_simd_lane // granules)

    def vgpr_budget(self, waves_per_workgroup: int) -> int:
        """Registers a lane may use so that one workgroup of that many waves is resident."""
        waves = -(-waves_per_workgroup // self.simds_per_cu)
        return self.vgprs_per_simd_lane // waves // self.vgpr_granule * self.vgpr_granule


GFX950 = Gfx950()
