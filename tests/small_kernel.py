"""A small kernel that everything around the generator can be tested with."""

from __future__ import annotations

from typing import Any

from mlagen.artifact import Arg, Artifact, GridDim, Manifest, Proof, Resources, SourceLine, sha256
from mlagen.targets.gfx950.assemble import assemble, build_flags
from mlagen.targets.gfx950.clang import find_tools

# o[i] = x[i] + add, one u32 a lane, 64 lanes a workgroup.
ADD_TEXT = """\
.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
.globl add
.p2align 8
.type add,@function
add:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  s_lshl_b32 s9, s2, 6
  v_add_u32_e32 v1, s9, v0
  v_lshlrev_b32_e32 v1, 2, v1
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_u32_e32 v2, s8, v2
  global_store_dword v1, v2, s[6:7]
  s_endpgm
.Lend:
.size add, .Lend-add
.rodata
.p2align 6
.amdhsa_kernel add
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_kernarg_size 24
  .amdhsa_next_free_vgpr 8
  .amdhsa_accum_offset 8
  .amdhsa_next_free_sgpr 16
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
  - .name: add
    .symbol: add.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 8
    .agpr_count: 0
    .max_flat_workgroup_size: 64
    .args:
      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global, .name: x}
      - {.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global, .name: o}
      - {.offset: 16, .size: 4, .value_kind: by_value, .name: add}
...
.end_amdgpu_metadata
"""
LOAD_LINE, USE_LINE = 13, 15  # of the load and of the first use of what it loads


def make(text: str = ADD_TEXT, *, config: Any = None, **changes: Any) -> Artifact:
    """The artifact of the small kernel; `changes` replace manifest fields, `config` its problem,
    its knobs and its facts."""
    code = assemble(text, file_name="add.s", source_lines={}, schedule_file="schedules/add.py")
    fields: dict[str, Any] = {
        "kernel": "add",
        "symbol": "add",
        "target": "gfx950",
        "problem_type": "AddConfig",
        "problem": {"lanes": 64, "mask": "causal"},
        "schedule_file": "schedules/add.py",
        "knobs": {"pattern": "even", "priority": 1, "ratio": 0.5},
        "args": (
            Arg("x", 0, 8, "pointer", "read"),
            Arg("o", 8, 8, "pointer", "write"),
            Arg("add", 16, 4, "u32", "value"),
        ),
        "kernarg_bytes": 24,
        "block": (64, 1, 1),
        "grid": (GridDim("length", 64),),
        "resources": Resources(8, 0, 16, 0, 0, 0, 0),
        "proof": Proof("proved", (), 4, 0),
        "tools": dict(find_tools("gfx950").versions),
        "flags": build_flags("gfx950"),
        "text_sha256": sha256(text),
        "code_sha256": sha256(code),
        "source": (
            SourceLine(LOAD_LINE, "loop", "A", "lower", "add/load.s.j2", 3, 21, "load(x, i)"),
            SourceLine(USE_LINE, "loop", "B", "upper", "add/use.s.j2", 5, 27, "use(x, i)"),
        ),
    }
    if config is not None:
        problem, knobs = config.parts()
        fields |= {
            "problem_type": type(problem).__name__,
            "problem": problem.to_fields(),
            "knobs": knobs,
            "facts": {"items": "one", **knobs},
        }
    fields.update(changes)
    return Artifact(Manifest(**fields), code, text)
