"""How much operations touch of what a schedule declares, and what a build says of less.

A schedule declares rooms, tiles, regions and registers; operations are written for sizes. Who takes
something declared states its extent, from the numbers that its templates take: so many bytes, rows,
columns or registers at least, or exactly so many where a template has the number built in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from mlagen.dsl.builder import listener
from mlagen.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Extent:
    """What operations touch of something declared: `least` of `unit` or more, or only as many as
    one of `exactly`. `why`: what needs them."""

    unit: str
    least: int = 0
    exactly: tuple[int, ...] = ()
    why: str = ""

    def fits(self, count: int) -> bool:
        """Whether a declaration of `count` serves."""
        return count in self.exactly if self.exactly else count >= self.least

    def __str__(self) -> str:
        count = " or ".join(map(str, self.exactly)) if self.exactly else str(self.least)
        said = f"exactly {count}" if self.exactly else count
        return said + (f" ({self.why})" if self.why else "")


class Declared(Protocol):
    """What a schedule declares: a room, a tile, a region, registers. Units of its extents are names
    of its attributes."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """What it is called: "room"."""

    @property
    def place(self) -> str:
        """File and line of the declaration, "" outside of a schedule."""


Some = TypeVar("Some", bound=Declared)


def exactly(unit: str, count: int | Iterable[int], why: str = "") -> Extent:
    """An extent that a template has built in: `count`, or one of several."""
    return Extent(unit, exactly=(count,) if isinstance(count, int) else tuple(count), why=why)


def at_least(unit: str, count: int, why: str = "") -> Extent:
    """An extent of which a declaration may have more."""
    return Extent(unit, least=count, why=why)


def touched(block: Some, *extents: Extent) -> Some:
    """What a schedule declared, for operations that touch so much of it. ScheduleError that names
    the declaration's line where it has less, or another count than is built in."""
    for extent in extents:
        count = getattr(block, extent.unit)
        if not extent.fits(count):
            raise ScheduleError(
                f"{block.place}: " * bool(block.place)
                + f"{block.kind} {block.name!r} has {count} {extent.unit}, "
                + f"operations touch {extent}"
            )
    return block


def declared_at() -> str:
    """File and line of the schedule that is being executed: those of the innermost function of its
    folder, since schedules of a folder share declarations. "" where no schedule is."""
    builder = listener()
    if builder is None:
        return ""
    folder = str(Path(builder.file).parent)
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and str(Path(file).parent) == folder:
            return f"{Path(folder).name}/{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
