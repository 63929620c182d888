"""y[i] = factor * x[i] on f32, 64 elements a workgroup, with and without declared arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gfx950_assembler import assemble

_BODY = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  s_waitcnt lgkmcnt(0)
  s_lshl_b32 s9, s2, 8
  v_lshlrev_b32 v1, 2, v0
  v_add_u32 v1, s9, v1
  global_load_dword v2, v1, s[4:5]
  {wait}
  v_mul_f32 v3, s8, v2
  s_nop 1
  global_store_dword v1, v3, s[6:7]{offset}
  s_endpgm
"""
_METADATA = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 32
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 96
    .vgpr_count: 64
    .max_flat_workgroup_size: 64
    .args:
      - {.name: x, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
{y}
      - {.name: factor, .offset: 16, .size: 4, .value_kind: by_value}
      - {.name: pad0, .offset: 20, .size: 4, .value_kind: by_value}
      - {.name: limits, .offset: 24, .size: 6, .value_kind: by_value}
...
.end_amdgpu_metadata
"""


_POINTER = (
    "      - {.name: y, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}"
)
# As AITER's fmha_v3_bwd declares some of its pointers.
_HALF = """      - {.name: ptr_y, .offset: 8, .size: 4, .value_kind: by_value}
      - {.name: pad, .offset: 12, .size: 4, .value_kind: by_value}"""


def scale_kernel(
    *,
    metadata: bool = True,
    wait: str = "s_waitcnt vmcnt(0)",
    offset: int = 0,
    half: bool = False,
) -> bytes:
    """The code object. `wait` stands before the product; `offset` moves the store by bytes; `half`
    declares the pointer to y as a value of 4 bytes."""
    body = _BODY.format(wait=wait, offset=f" offset:{offset}" if offset else "")
    declared = _METADATA.replace("{y}", _HALF if half else _POINTER)
    return assemble(body + (declared if metadata else ""), kernarg=32)


LAUNCH = """grid = [2, 1, 1]
block = [64, 1, 1]

[buffers.x]
file = "x.npy"

[buffers.y]
dtype = "f32"
shape = [2, 64]
output = "y.npy"

[[arguments]]
offset = 0
buffer = "x"

[[arguments]]
offset = 8
buffer = "y"

[[arguments]]
name = "factor"
type = "f32"
value = 2.5

[[arguments]]
offset = 24
type = "u32"
value = 7

[[arguments]]
offset = 28
type = "i16"
value = -1
"""


def write_case(folder: Path, launch: str = LAUNCH, **options: object) -> tuple[Path, Path]:
    """k.co, launch.toml and x.npy (0 .. 127) in a folder; the paths of the first two."""
    code, file = folder / "k.co", folder / "launch.toml"
    code.write_bytes(scale_kernel(**options))  # type: ignore[arg-type]
    file.write_text(launch)
    np.save(folder / "x.npy", np.arange(128, dtype=np.float32))
    return code, file
