"""Rows of e4m3 on gfx950: what a lane loads of the row that it fetches, and where its bf16 numbers
go.

Eight lanes have a row, each 8 columns of every 64: an *area* of a tile in LDS has 64 columns of all
its keys as bf16. Rows come to registers a tile before they are converted and stored, once for all
waves. Columns of bf16 are stored as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mlagen.families.mla_sparse.gfx950.form import Problem
from mlagen.families.mla_sparse.rows import BF16_BYTES, FP32_BYTES, RowFormat
from mlagen.targets.gfx950.dsl import Regs

AREA = 64  # columns
OF_LANE = 8  # columns of an area that a lane has
DWORD = 4
LOADS = {1: "global_load_dword", 2: "global_load_dwordx2", 4: "global_load_dwordx4"}


@dataclass(frozen=True, slots=True)
class Load:
    """Loads registers `first` .. of a lane from byte `offset` behind one of its addresses:
    `column`, of its e4m3 columns; `rope`, of its bf16 ones; `row`, where the row begins; `scales`.
    """

    address: str
    first: int
    count: int
    offset: int

    @property
    def mnemonic(self) -> str:
        return LOADS[self.count]


@dataclass(frozen=True, slots=True)
class AreaOf:
    """An area: the first register of its numbers, `rope`: whether these are bf16; the register of
    their scale, None where they have none, and the bit of it where a ue8m0 scale begins."""

    raw: int
    rope: bool = False
    scale: int | None = None
    bit: int = 0


@dataclass(frozen=True)
class Stored:
    """Of a problem whose rows are not bf16."""

    k: Problem

    @property
    def row(self) -> RowFormat:
        return self.k.row_format

    @property
    def plain_areas(self) -> int:
        """Areas of e4m3 columns."""
        return self.row.content(self.k.d_qk) // AREA

    @property
    def once(self) -> bool:
        """Whether a number is multiplied by a scale before it is rounded to bf16."""
        return self.row.once

    @property
    def by_key(self) -> bool:
        """Whether a key has one scale, which multiplies its score and its weight."""
        return self.row.scale == "side" and not self.row.block

    @property
    def beside(self) -> bool:
        """Whether scales of columns lie beside the cache."""
        return self.row.scale == "side" and self.row.block > 0

    @property
    def fine(self) -> bool:
        """Whether the lanes of an area have two scales."""
        return 0 < self.row.block < AREA

    @property
    def scale_count(self) -> int:
        """Scales of columns, of a row."""
        return self.row.scales(self.k.d_qk) if self.once else 0

    @cached_property
    def _scales(self) -> tuple[Load, ...]:
        first = 2 * self.plain_areas + (DWORD if self.row.rope else 0)
        if not self.once:
            return ()
        if self.row.scale == "ue8m0":
            return (Load("scales", first, 2, 0),)
        if self.row.scale == "fp32":
            return (Load("row", first, self.scale_count, self.row.content(self.k.d_qk)),)
        if self.fine:
            apart = FP32_BYTES * AREA // self.row.block
            areas = range(self.plain_areas)
            return tuple(Load("scales", first + n, 1, apart * n) for n in areas)
        found, at = [], 0
        while at < self.scale_count:
            count = 4 if self.scale_count - at >= 4 else 1
            found.append(Load("scales", first + at, count, FP32_BYTES * at))
            at += count
        return tuple(found)

    @property
    def loads(self) -> tuple[Load, ...]:
        """All of a tile, by address."""
        found = [Load("column", 2 * n, 2, AREA * n) for n in range(self.plain_areas)]
        if self.row.rope:
            inside = FP32_BYTES * self.scale_count if self.row.scale == "fp32" else 0
            at = self.row.content(self.k.d_qk) + inside
            found.append(Load("rope", 2 * self.plain_areas, DWORD, at))
        return (*found, *self._scales)

    @property
    def registers(self) -> int:
        """That a tile's loads fill."""
        return max(load.first + load.count for load in self.loads)

    @property
    def areas(self) -> tuple[AreaOf, ...]:
        """Of a tile, by columns."""
        first = self._scales[0].first if self._scales else 0
        found = [self._area(n, first) for n in range(self.plain_areas)]
        if self.row.rope:
            found.append(AreaOf(2 * self.plain_areas, rope=True))
        return tuple(found)

    def _area(self, n: int, first: int) -> AreaOf:
        if not self.once:
            return AreaOf(2 * n)
        if self.row.scale == "ue8m0":
            word, byte = divmod(n, DWORD)
            return AreaOf(2 * n, scale=first + word, bit=8 * byte)
        return AreaOf(2 * n, scale=first + (n if self.fine else AREA * n // self.row.block))

    @property
    def addresses(self) -> set[str]:
        """What loads count from."""
        return {load.address for load in self.loads}

    @property
    def data_bytes(self) -> int:
        """Bytes of a row ahead of scales that lie behind the page's rows."""
        return self.row.row_bytes(self.k.d_qk) - self.scale_bytes

    @property
    def scale_bytes(self) -> int:
        """Bytes of a row's scales there, with padding."""
        return self.row.scales(self.k.d_qk) + 1

    @property
    def lane_shift(self) -> int:
        """From the first byte of a lane's bf16 numbers in an area to that of its e4m3 ones."""
        return BF16_BYTES.bit_length() - 1


def numbered(registers: Regs, load: Load) -> Regs:
    """The registers that a load fills."""
    return registers[load.first : load.first + load.count]
