"""What the host passes to a kernel and how many workgroups it starts, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mlagen.artifact.manifest import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES

Kind = Literal["pointer", "u32", "i32", "f32", "tensor_map"]
SIZES: dict[str, int] = {"pointer": 8, "u32": 4, "i32": 4, "f32": 4, "tensor_map": TENSOR_MAP_BYTES}


@dataclass(frozen=True, slots=True)
class TmaMatrix:
    """The tensor `tensor` as a row-major matrix of `cols` columns (a number, or the name of a
    run-time size), fetched in boxes of `box_rows` x `box_cols` elements."""

    tensor: str
    dtype: str
    cols: int | str
    box_cols: int
    box_rows: int
    swizzle_bytes: Literal[0, 32, 64, 128] = 128


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One kernel argument at byte `offset` of the kernel-argument segment. `dtype`: of a pointer's
    tensor, where the launcher should check it. `align`: bytes that the pointer must be a multiple
    of. `rows_of`: a tensor, whose rows of `row` elements the launcher counts, or its first extent
    (0)."""

    name: str
    offset: int
    kind: Kind
    access: Literal["read", "write", "value"]
    dtype: str = ""
    tensor_map: TmaMatrix | None = None
    align: int = 1
    rows_of: str = ""
    row: int = 1

    @property
    def size(self) -> int:
        return SIZES[self.kind]


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments in offset order; `grid[d]` = (size name, elements a workgroup covers) for each
    dimension; `block` in threads. `dependent`: arguments whose tensors the kernel before it in the
    stream writes. The kernel waits for them itself (griddepcontrol.wait), so that its launch may
    come before that one's end; without any it is launched after it.
    `resident`: blocks that registers shall leave room for on an SM (sm_90a). `clusters`: blocks of
    a CTA cluster, of which there is a whole number along the first dimension."""

    arguments: tuple[KernelArgument, ...]
    grid: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]
    dependent: tuple[str, ...] = ()
    resident: int = 1
    clusters: int = 1

    @property
    def kernarg_bytes(self) -> int:
        end = max(argument.offset + argument.size for argument in self.arguments)
        return -(-end // 8) * 8


def pack(*arguments: tuple[str, str | TmaMatrix, str]) -> tuple[KernelArgument, ...]:
    """Arguments (name, kind, access) laid out one after another, each on its own alignment.

    A tensor map stands in place of its kind. A pointer may name its tensor's dtype and the bytes
    that it must be a multiple of: "pointer:bf16@16". "rows:items@12" is a u32: how many rows of 12
    elements the tensor `items` has; "rows:items@0": its first extent.
    """
    offset = 0
    packed = []
    for name, what, access in arguments:
        kind, _, more = ("tensor_map", "", "") if isinstance(what, TmaMatrix) else (
            what.partition(":")
        )  # fmt: skip
        dtype, _, multiple = more.partition("@")
        counted: dict[str, Any] = {}
        if kind == "rows":
            counted = {"rows_of": dtype, "row": int(multiple or "1")}
            kind, dtype, multiple = "u32", "", ""
        size = SIZES[kind]
        align = TENSOR_MAP_ALIGN if kind == "tensor_map" else size
        offset = -(-offset // align) * align
        box = what if isinstance(what, TmaMatrix) else None
        packed.append(
            KernelArgument(name, offset, kind, access, dtype, box, int(multiple or 1), **counted)  # type: ignore[arg-type]
        )
        offset += size
    return tuple(packed)
