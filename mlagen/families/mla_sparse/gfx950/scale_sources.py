"""Where scales of columns lie on gfx950, and which of them a lane loads: a class a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from mlagen.families.mla_sparse.rows import FP32_BYTES, RowFormat

AREA = 64  # columns
DWORD = 4
LOADS = {1: "global_load_dword", 2: "global_load_dwordx2", 4: "global_load_dwordx4"}


@dataclass(frozen=True, slots=True)
class Load:
    """Loads registers `first` .. of a lane from byte `offset` behind one of its addresses:
    `column`, of its e4m3 columns; `rope`, of its bf16 ones; `row`, where the row begins; `scales`,
    which a source's template finds."""

    address: str
    first: int
    count: int
    offset: int

    @property
    def mnemonic(self) -> str:
        return LOADS[self.count]


class ScaleSource(Protocol):
    """Scales of a row's columns, in registers from `first` on."""

    @property
    def template(self) -> str | None:
        """That finds the address `scales`, if loads need it."""

    @property
    def conversion(self) -> str:
        """The template of how e4m3 numbers become bf16 with their scale."""

    @property
    def exponents(self) -> bool:
        """Whether a scale is ue8m0, one byte, or fp32."""

    @property
    def before_rope(self) -> int:
        """Bytes of scales between e4m3 columns and bf16 ones."""

    @property
    def loads(self) -> tuple[Load, ...]:
        """What brings them."""

    def of_area(self, n: int) -> tuple[int, int]:
        """Register and first bit of the scale that a lane's numbers of an area have, or of the
        first lanes' of an area."""


class AsStored:
    """No scale multiplies numbers before they are bf16."""

    conversion: ClassVar[str] = "latent/storage/times_one.s.j2"


@dataclass(frozen=True)
class _Scales:
    row: RowFormat
    d_qk: int
    first: int
    conversion: ClassVar[str] = "latent/storage/times_fp32.s.j2"

    @property
    def count(self) -> int:
        """Scales of a row."""
        return self.row.scales(self.d_qk)


class InRow(_Scales):
    """fp32, behind the row's e4m3 columns."""

    template, exponents = None, False

    @property
    def before_rope(self) -> int:
        return FP32_BYTES * self.count

    @property
    def loads(self) -> tuple[Load, ...]:
        return (Load("row", self.first, self.count, self.row.content(self.d_qk)),)

    def of_area(self, n: int) -> tuple[int, int]:
        return self.first + AREA * n // self.row.block, 0


class ScalesBeside(_Scales):
    """fp32, in an array beside the cache. Of narrow blocks the lanes of an area have two."""

    template, exponents, before_rope = "latent/storage/scales_beside.s.j2", False, 0

    @property
    def narrow(self) -> bool:
        return self.row.block < AREA

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        if self.narrow:
            apart = FP32_BYTES * AREA // self.row.block
            areas = self.row.content(self.d_qk) // AREA
            return tuple(Load("scales", self.first + n, 1, apart * n) for n in range(areas))
        found, at = [], 0
        while at < self.count:
            count = 4 if self.count - at >= 4 else 1
            found.append(Load("scales", self.first + at, count, FP32_BYTES * at))
            at += count
        return tuple(found)

    def of_area(self, n: int) -> tuple[int, int]:
        return self.first + (n if self.narrow else AREA * n // self.row.block), 0


class AtPageEnd(_Scales):
    """ue8m0, behind all rows of a page: those of a row, and padding."""

    template, exponents, before_rope = "latent/storage/scales_at_page_end.s.j2", True, 0

    @property
    def scale_bytes(self) -> int:
        """Bytes of a row's scales there."""
        return self.row.behind

    @property
    def data_bytes(self) -> int:
        """Bytes of a row ahead of them."""
        return self.row.row_bytes(self.d_qk) - self.scale_bytes

    @property
    def loads(self) -> tuple[Load, ...]:
        return (Load("scales", self.first, 2, 0),)

    def of_area(self, n: int) -> tuple[int, int]:
        word, byte = divmod(n, DWORD)
        return self.first + word, 8 * byte


class PowersInRow(_Scales):
    """ue8m0, behind the row's e4m3 columns, one for each 32: the lanes of an area have two. The
    instruction that converts multiplies by a power of two, which rounds nothing, and knows NaN."""

    template, exponents, before_rope = None, True, 0
    conversion = "latent/storage/times_power.s.j2"

    @property
    def loads(self) -> tuple[Load, ...]:
        return (Load("row", self.first, self.count // DWORD, self.row.content(self.d_qk)),)

    def of_area(self, n: int) -> tuple[int, int]:
        word, pair = divmod(AREA // self.row.block * n, DWORD)
        return self.first + word, 8 * pair


# By what scales are and whether they lie behind the rows of a page.
SOURCES: dict[tuple[str, bool], Callable[[RowFormat, int, int], ScaleSource]] = {
    ("fp32", False): InRow,
    ("side", False): ScalesBeside,
    ("ue8m0", True): AtPageEnd,
    ("ue8m0", False): PowersInRow,
}
