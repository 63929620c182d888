"""A case → PTX for its machine, and what a launch of it needs. No GPU; Triton must be installed.

The ptxas that mlagen finds assembles it, which shows that the text is valid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
from compiler_case import Arrays, Case, Tiles
from compiler_source import source_of
from triton import knobs
from triton.backends.compiler import GPUTarget

from mlagen.targets.nvidia.ptxas import find_ptxas

# The version of PTX that ptxas 13.0 reads: the one that mlagen's extra `nvidia` brings.
PTX_VERSION = 90
# Bits are those of the text only where ptxas fuses no multiplication with an addition.
PTXAS_OPTIONS = "--fmad=false"
# Numbers of element types and swizzles in the compiler's metadata are those of tensormap.replace
# (PTX ISA, "tensormap.replace"); here, the words of launch files.
_MAP_TYPES = ("u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f32_ftz", "f64", "bf16")
_SWIZZLES = {0: "none", 1: "32B", 2: "64B", 3: "128B"}


@dataclass(frozen=True)
class TensorMap:
    """A tensor map in the words of launch files; dimensions from the innermost on.

    `strides`: bytes, of all dimensions but the innermost. `box`: elements. The rest is what
    Triton's driver passes: element strides of 1, no interleave, L2 promotion to 128 bytes.
    """

    buffer: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str
    fill: str = "zeros"
    interleave: str = "none"
    l2: str = "128B"

    @property
    def element_strides(self) -> tuple[int, ...]:
        return (1,) * len(self.dims)


@dataclass(frozen=True)
class Parameter:
    """A parameter of the entry: exactly one of `buffer`, `tensor_map` and `value` is given."""

    name: str
    type: str
    buffer: str | None = None
    tensor_map: TensorMap | None = None
    value: int | float | None = None


@dataclass(frozen=True)
class Compiled:
    """PTX with its launch. `shared`: dynamic bytes a CTA. `scratch`: bytes of the whole grid.

    `grid`: CTAs, those of a cluster counted.
    """

    case: Case
    ptx: str
    cubin: bytes
    entry: str
    parameters: tuple[Parameter, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    scratch: int
    metadata: dict[str, Any]

    @property
    def declared(self) -> list[tuple[str, int]]:
        """The entry's parameters as the text declares them: name and bytes."""
        found = re.search(rf"\.entry\s+{self.entry}\(([^)]*)\)", self.ptx)
        assert found
        return [_declaration(line) for line in found[1].split(",")]


def compiled(case: Case) -> Compiled:
    """Compiles the kernel of a case; the compiler keeps what it made in its own cache.

    Errors are the compiler's own; MissingError without a ptxas.
    """
    source, signature, buffers = source_of(case)
    options = {
        "ptx_version": PTX_VERSION,
        "ptx_options": PTXAS_OPTIONS,
        "enable_fp_fusion": True,  # the compiler's own, which the text says
        **case.options,
    }
    with knobs.nvidia.scope():
        knobs.nvidia.ptxas_blackwell = find_ptxas("sm_90a").commands[0][0]
        target = GPUTarget("cuda", case.machine, 32)
        made = triton.compile(source, target=target, options=options)
    meta = made.metadata
    ctas = meta.num_ctas
    grid = case.grid
    scratch = meta.global_scratch_size * ctas * int(np.prod(grid))
    ptx = made.asm["ptx"]
    return Compiled(
        case=case,
        ptx=ptx,
        cubin=made.asm["cubin"],
        entry=meta.name,
        parameters=_parameters(case, signature, buffers, meta, scratch),
        grid=(grid[0] * ctas, grid[1], grid[2]),
        block=(32 * meta.num_warps, 1, 1),
        cluster=(ctas, 1, 1),
        shared=meta.shared,
        scratch=scratch,
        metadata=meta._asdict(),
    )


def _parameters(
    case: Case, signature: dict[str, str], buffers: Arrays, meta: Any, scratch: int
) -> tuple[Parameter, ...]:
    """The entry's parameters in order: constants are none, a descriptor is several."""
    found: list[Parameter] = []
    maps = iter(meta.tensordesc_meta or ())
    for name, kind in signature.items():
        if kind == "constexpr":
            continue
        argument = case.arguments[name]
        if isinstance(argument, Tiles):
            found += _descriptor(name, argument, buffers[argument.buffer], next(maps))
        elif isinstance(argument, str):
            found.append(Parameter(name, "u64", buffer=argument))
        else:
            types = {"i32": "i32", "i64": "i64", "fp32": "f32"}
            value = float(argument) if kind == "fp32" else int(argument)
            found.append(Parameter(name, types[kind], value=value))
    for extra, size in (("global_scratch", scratch), ("profile_scratch", 0)):
        buffer, value = (extra, None) if size else (None, 0)
        found.append(Parameter(extra, "u64", buffer=buffer, value=value))
    return tuple(found)


def _descriptor(
    name: str, tiles: Tiles, array: np.ndarray, meta: dict[str, Any]
) -> list[Parameter]:
    """A descriptor's parameters: the map, the shape (i32), the strides (i64), outermost first."""
    element = array.dtype.itemsize
    assert meta["elem_size"] == element and not meta["fp4_padded"], meta
    strides = [stride // element for stride in array.strides]
    tensor_map = TensorMap(
        buffer=tiles.buffer,
        dtype=_MAP_TYPES[meta["elem_type"]],
        dims=array.shape[::-1],
        strides=tuple(stride * element for stride in strides[-2::-1]),
        box=tuple(meta["block_size"][::-1]),
        swizzle=_SWIZZLES[meta["swizzle"]],
        fill="nan" if tiles.nan else "zeros",
    )
    return [
        Parameter(name, "tensor_map", tensor_map=tensor_map),
        *(Parameter(f"{name}.shape{i}", "i32", value=n) for i, n in enumerate(array.shape)),
        *(Parameter(f"{name}.stride{i}", "i64", value=n) for i, n in enumerate(strides)),
    ]


def _declaration(text: str) -> tuple[str, int]:
    """`.param .align 64 .b8 x[128]` → ("x", 128)."""
    found = re.fullmatch(r"\s*\.param\b.*?\.[a-z](\d+)\s.*?(\w+)(?:\[(\d+)\])?\s*", text, re.S)
    assert found, text
    return found[2], int(found[1]) // 8 * int(found[3] or 1)
