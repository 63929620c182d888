"""Kernels as other people write them: roles by branches on the wave's number, no line map."""

_METADATA = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 64
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 96
    .vgpr_count: 64
    .agpr_count: 0
    .max_flat_workgroup_size: {threads}
    .args: []
...
.end_amdgpu_metadata
"""


def for_threads(threads: int, body: str) -> str:
    """A body with the metadata that declares a workgroup of so many threads."""
    return body + _METADATA.format(threads=threads)


# Two roles that take turns: two barriers a pass, the second role lags by one barrier.
TWO_ROLES = """
  s_load_dword s8, s[0:1], 0x0
  v_lshrrev_b32 v1, 6, v0
  v_readfirstlane_b32 s3, v1
  v_lshlrev_b32 v2, 4, v0
  s_waitcnt lgkmcnt(0)
  s_cmp_lt_i32 s3, 2
  s_cbranch_scc0 second
first:
  s_waitcnt lgkmcnt(2)
  v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], v[16:31]
  v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], v[16:31]
  s_barrier
  ds_read_b64 v[4:5], v2
  ds_read_b64 v[6:7], v2 offset:4096
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_sub_u32 s8, s8, 1
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 first
  s_barrier
  s_branch done
second:
  s_barrier
again:
  v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], v[16:31]
  s_barrier
  ds_read_b64 v[4:5], v2
  ds_read_b64 v[6:7], v2 offset:4096
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_sub_u32 s8, s8, 1
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 again
done:
  s_endpgm
"""

# Wave 0 alone does something, but all waves meet the same barriers.
GUARDED = """
  v_lshrrev_b32 v1, 6, v0
  v_readfirstlane_b32 s3, v1
  s_cmp_eq_u32 s3, 0
  s_cbranch_scc0 skip
  v_mov_b32 v2, 1.0
skip:
  s_barrier
  v_mov_b32 v3, 2.0
  s_endpgm
"""

# The branch is on a loaded number: nobody can say which wave goes where.
ON_DATA = GUARDED.replace("v_readfirstlane_b32 s3, v1", "s_load_dword s3, s[0:1], 0x0").replace(
    "skip:\n  s_barrier", "  s_barrier\nskip:"
)

# A compiler's way: a mask of lanes instead of a scalar.
BY_MASK = """
  v_cmp_gt_u32 vcc, 64, v0
  s_cbranch_vccz others
  s_barrier
others:
  s_barrier
  s_endpgm
"""

# A jump from before the barrier comes in after it.
COMES_IN = """
  s_load_dword s8, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s8, 7
  s_cbranch_scc1 tail
  v_mov_b32 v2, 1.0
  s_barrier
  v_mov_b32 v3, 1.0
tail:
  v_mov_b32 v4, 1.0
  s_endpgm
"""

# Two ways round, with one barrier and with two.
TWO_LATCHES = """
  s_load_dword s8, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
top:
  s_barrier
  s_sub_u32 s8, s8, 1
  s_cmp_eq_u32 s8, 7
  s_cbranch_scc1 top
  s_barrier
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 top
  s_endpgm
"""

# A loop that is entered at two places.
TWO_ENTRIES = """
  s_load_dword s8, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s8, 7
  s_cbranch_scc1 middle
top:
  s_barrier
middle:
  v_mov_b32 v3, 2.0
  s_sub_u32 s8, s8, 1
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 top
  s_endpgm
"""
