"""The manifest: everything needed to launch a code object and to trace it back to its schedule.

Values only. Sizes are bytes and registers are counted per lane unless a name says otherwise. What
is read is held to what a kernel can have: a manifest may be a stranger's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from mlagen.artifact.maps import Bytes, Count, KernelMap
from mlagen.errors import ConfigError

SCHEMA = "mlagen.manifest/7"

Knob = int | float | str | bool
Status = Literal["proved", "ordered", "unproved"]

NOT_COMPARED = "what is computed was not compared (no s.plain)"

Extent = Annotated[int, msgspec.Meta(ge=1, le=1024)]  # threads of a block along a dimension
Line = Annotated[int, msgspec.Meta(ge=0, le=1 << 30)]
Argument = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]  # bytes of a kernel-argument segment
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Memory = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]

# Element types of tensors that cross a launch, and their bytes.
DTYPE_BYTES = {
    "bf16": 2,
    "fp16": 2,
    "fp32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "uint8": 1,
    "int8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
}
# Limits of a tensor map (CUDA driver API, cuTensorMapEncodeTiled).
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64
TENSOR_MAP_BOX, TENSOR_MAP_STEP = 256, 16  # elements of a box dimension; bytes of a box row


class TensorMapSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor map: the tensor `tensor` seen as a row-major matrix, fetched in boxes.

    The matrix is [rows, cols] with `pitch` elements from row to row (0: `cols`); its rows are all
    that the tensor holds: elements / pitch. `cols` and `pitch` are numbers or names of run-time
    sizes. A box is box_rows x box_cols elements; what lies outside of the matrix arrives as zeros.
    """

    tensor: str
    dtype: str  # of DTYPE_BYTES; the tensor must have it
    cols: int | str
    box_cols: int
    box_rows: int
    swizzle_bytes: Literal[0, 32, 64, 128] = 0
    pitch: int | str = 0

    def __post_init__(self) -> None:
        _check_dtype(f"tensor map of {self.tensor}", self.dtype)
        for name, extent in (("box_cols", self.box_cols), ("box_rows", self.box_rows)):
            if not 1 <= extent <= TENSOR_MAP_BOX:
                raise ConfigError(
                    f"tensor map of {self.tensor}: {name}={extent}; a box has 1 to {TENSOR_MAP_BOX}"
                )
        row = self.box_cols * DTYPE_BYTES[self.dtype]
        if row % TENSOR_MAP_STEP or (self.swizzle_bytes and row > self.swizzle_bytes):
            most = f", at most {self.swizzle_bytes}" if self.swizzle_bytes else ""
            raise ConfigError(
                f"tensor map of {self.tensor}: box rows of {row} bytes; they are multiples of "
                f"{TENSOR_MAP_STEP}{most} with swizzle_bytes={self.swizzle_bytes}"
            )

    def columns(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """(cols, pitch) in elements for run-time `sizes`."""
        what = f"the tensor map of {self.tensor}"
        found = [_size(extent, sizes, what) for extent in (self.cols, self.pitch)]
        cols, pitch = found[0], found[1] or found[0]
        if not 1 <= cols <= pitch:
            raise ConfigError(
                f"tensor map of {self.tensor}: {cols} columns in rows {pitch} elements apart"
            )
        return cols, pitch


def _size(extent: int | str, sizes: Mapping[str, int], what: str) -> int:
    if isinstance(extent, int):
        return extent
    if extent not in sizes:
        raise ConfigError(
            f"{what} needs the size {extent!r}",
            hint=f"sizes given: {', '.join(sorted(sizes)) or 'none'}",
        )
    return sizes[extent]


def _check_dtype(what: str, dtype: str) -> None:
    if dtype not in DTYPE_BYTES:
        hint = f"dtypes: {', '.join(DTYPE_BYTES)}"
        raise ConfigError(f"{what}: unknown dtype {dtype!r}", hint=hint)


class Arg(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One kernel argument: `size` bytes at `offset` of the kernel-argument segment.

    A pointer is to the tensor of its name. A tensor map (128 bytes, 64-aligned) describes the
    tensor that its spec names, which several arguments may share. A u32 with `rows_of` is how many
    rows of `row` elements that tensor has, 0: its first extent. Launchers count them, so that a
    kernel may hold places that it reads from memory against what there is.
    """

    name: str
    offset: Argument
    size: Argument
    kind: Literal["pointer", "u32", "i32", "f32", "tensor_map"]
    access: Literal["read", "write", "value"]
    dtype: str = ""  # of a pointer's tensor, of DTYPE_BYTES; "": not checked by the launcher
    align: Positive = 1  # bytes that a pointer must be a multiple of
    tensor_map: TensorMapSpec | None = None
    rows_of: str = ""
    row: Memory = 1

    def __post_init__(self) -> None:
        if self.rows_of and (self.kind, self.access) != ("u32", "value"):
            raise ConfigError(
                f"argument {self.name}: rows of {self.rows_of} are counted in a u32, not a "
                f"{self.kind}"
            )
        if (self.kind == "tensor_map") != (self.tensor_map is not None):
            raise ConfigError(f"argument {self.name}: kind {self.kind!r} and its spec do not agree")
        if self.tensor_map and (self.size != TENSOR_MAP_BYTES or self.offset % TENSOR_MAP_ALIGN):
            raise ConfigError(
                f"argument {self.name}: a tensor map is {TENSOR_MAP_BYTES} bytes at a multiple of "
                f"{TENSOR_MAP_ALIGN}, not {self.size} at {self.offset}"
            )
        if self.dtype:
            _check_dtype(f"argument {self.name}", self.dtype)

    @property
    def tensor(self) -> str:
        """The tensor it needs; "" for a number that is not counted."""
        if self.tensor_map:
            return self.tensor_map.tensor
        return self.name if self.kind == "pointer" else self.rows_of

    def rows_in(self, shape: Sequence[int]) -> int:
        """What is passed, for a tensor of this shape. ConfigError where it does not fit."""
        count = math.prod(shape) // self.row if self.row else int(shape[0])
        if count >= 1 << 32:
            raise ConfigError(f"{self.rows_of} has {count} rows: {self.name} has 32 bits")
        return count


class GridDim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One grid dimension: `ceil(sizes[size] / tile)` workgroups, and as many more as make a
    multiple of `clusters`."""

    size: str
    tile: Positive
    clusters: Positive = 1

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """Workgroups along this dimension for run-time `sizes`."""
        size = _size(self.size, sizes, "the grid")
        if size < 1:
            raise ConfigError(f"{self.size} = {size}: the grid needs at least 1")
        return -(-size // (self.tile * self.clusters)) * self.clusters


class SourceLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where one line of the `.s` came from. Lines are 1-based; 0 means "not from there"."""

    asm_line: Line
    section: str  # "prologue", "loop", "drain odd"
    cluster: str  # "B"; "" outside clusters
    role: str  # "lower", "upper", "all"
    template: str  # "FOLDER/qk.s.j2"
    template_line: Line
    schedule_line: Line  # in Manifest.schedule_file
    operation: str = ""  # as the schedule says it: "read(V, i-1)"
    needed: str = ""  # of a wait placed by hand: the counts that the accesses need, or "none"


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one wave (registers, scratch) and one workgroup (LDS) take.

    On NVIDIA targets `vgprs` are the registers of a thread at entry, `lds_bytes` is the dynamic
    shared memory that the launcher asks for, and `barriers` are the named barriers of the text, as
    many as the cubin has; 0 in manifests that do not tell.
    """

    vgprs: Count
    agprs: Count
    sgprs: Count
    lds_bytes: Bytes
    scratch_bytes: Memory
    vgpr_spills: Memory
    sgpr_spills: Memory
    barriers: Count = 0


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was shown of a kernel, and how far the expansion was checked.

    "ordered": every cross-wave access pair is ordered. "proved": that, and each operation of the
    plain loop that the kernel declares (`s.plain`) is done once and takes what the loop gives it.
    "unproved": something was found against it, and it was built all the same.
    """

    status: Status
    reasons: tuple[str, ...] = ()
    checked_tiles: int = 0  # the largest N expanded
    pairs: int = 0
    slack: tuple[str, ...] = ()  # waits placed by hand that are stricter than needed

    @property
    def launchable(self) -> bool:
        """Whether launchers take it: nothing was found against it. What a kernel computes is the
        business of whoever wrote it; what may race is nobody's."""
        return self.status != "unproved"

    def verdict(self) -> str:
        """What is shown and what is not, on one line."""
        if self.status == "ordered":
            return f"ordered; {NOT_COMPARED}"
        return "proved" if self.launchable else "UNPROVED: " + "; ".join(self.reasons)

    def extent(self) -> str:
        """`proved: 101 access pairs, up to 9 tiles`; of an unproved one the status alone."""
        if not self.launchable:
            return "UNPROVED"
        checked = f"{self.status}: {self.pairs} access pairs, up to {self.checked_tiles} tiles"
        return checked if self.status == "proved" else f"{checked}; {NOT_COMPARED}"


class Rounding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rounding of a kernel's that its mathematics does not ask for. `name`: "P"; `to`: the format
    of what is left, "fp8_e4m3"; `where`: which values, and why they are rounded."""

    name: str
    to: str
    where: str = ""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of one code object."""

    kernel: str
    symbol: str  # of the entry, without ".kd"
    target: str
    problem_type: str
    problem: dict[str, Any]
    schedule_file: str
    knobs: dict[str, Knob]
    args: tuple[Arg, ...]
    kernarg_bytes: Argument
    block: tuple[Extent, Extent, Extent]
    grid: tuple[GridDim, ...]
    resources: Resources
    proof: Proof
    tools: dict[str, str]
    flags: tuple[str, ...]
    text_sha256: str
    code_sha256: str
    map: KernelMap = KernelMap()
    source: tuple[SourceLine, ...] = ()
    family: str = ""  # of the problem; "": of none
    dependent: tuple[str, ...] = ()  # tensors of the kernel before, which it waits for itself
    numerics: tuple[Rounding, ...] = ()  # roundings beside those of inputs, outputs and fp32 sums
    facts: dict[str, Any] = {}  # of the kernel's variant, as its family reads them
    schema: str = SCHEMA

    @property
    def variant(self) -> str:
        """The form of the kernel, by the name that its schedule has for it; "" where it has one."""
        return str(self.knobs.get("variant", ""))

    @property
    def rounds(self) -> str:
        """What is rounded besides the output, and to what, on a line; "" where nothing is said."""
        return ", ".join(f"{one.name} to {one.to}" for one in self.numerics)

    def grid_for(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """The grid in workgroups for run-time `sizes`, padded with 1 to three dimensions."""
        blocks = [dim.blocks(sizes) for dim in self.grid]
        x, y, z = (*blocks, 1, 1, 1)[:3]
        return x, y, z

    @property
    def proved(self) -> bool:
        """Whether its order is proved and what it computes was compared with the plain loop."""
        return self.proof.status == "proved"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A manifest with the bytes it describes: `code` is the `.co` or `.cubin`, `text` the `.s` or
    `.ptx`."""

    manifest: Manifest
    code: bytes
    text: str

    @property
    def key(self) -> str:
        """Content address: the rendered text, the tools' versions and the flags."""
        return artifact_key(self.text, self.manifest.tools, self.manifest.flags)


def sha256(data: bytes | str) -> str:
    """Hex digest; text is hashed as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def artifact_key(text: str, tools: Mapping[str, str], flags: Iterable[str]) -> str:
    """The store's key of a kernel. Problem and knobs are not part of it: the text says it all."""
    parts = [sha256(text), sorted(tools.items()), list(flags)]
    return sha256(msgspec.json.encode(parts))
