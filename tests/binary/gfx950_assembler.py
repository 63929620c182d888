"""Assembling small kernels for the tests of the binary reader and the emulator."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import ziglang

_ZIG = str(next(Path(ziglang.__file__).parent.glob("zig*")))
_FRAME = """.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
{body}
.Lend_{name}:
.size {name}, .Lend_{name}-{name}
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 96
  .amdhsa_accum_offset {accum}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_kernarg_size {kernarg}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_float_denorm_mode_32 {denormals}
  .amdhsa_dx10_clamp 0
  .amdhsa_ieee_mode 0
  {extra}
.end_amdhsa_kernel
"""


def run_zig(arguments: list[str], cwd: Path) -> None:
    """Run one of zig's LLVM tools; a failure shows the tool's message."""
    done = subprocess.run([_ZIG, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def link(directory: Path, language: list[str], source: str) -> bytes:
    """Compile `source` (a file name in `directory`) and link it to a code object."""
    target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx950"]
    run_zig(["clang", *target, *language, "-c", source, "-o", "k.o"], directory)
    run_zig(["ld.lld", "-shared", "k.o", "-o", "k.co"], directory)
    return (directory / "k.co").read_bytes()


@functools.cache
def assemble(
    body: str,
    *,
    name: str = "k",
    vgprs: int = 64,
    accum: int = 0,
    lds: int = 0,
    kernarg: int = 64,
    denormals: int = 3,
    extra: str = "",
) -> bytes:
    """A linked code object with one kernel; s[0:1] is the argument pointer, s2 the workgroup."""
    text = _FRAME.format(
        name=name,
        body=body,
        vgprs=vgprs,
        accum=accum or -(-vgprs // 4) * 4,
        lds=lds,
        kernarg=kernarg,
        denormals=denormals,
        extra=extra,
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "k.s").write_text(text)
        return link(directory, ["-g"], "k.s")


@functools.cache
def compile_ir(text: str) -> bytes:
    """A linked code object made by LLVM from IR, wait states padded by its hazard recogniser."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "k.ll").write_text(text)
        return link(directory, ["-nogpulib", "-x", "ir", "-O2"], "k.ll")
