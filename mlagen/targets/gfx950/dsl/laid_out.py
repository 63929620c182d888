"""What operations are written for of a ring: the shapes of its areas, who fetches them, and what
lies behind them. Other ones are refused."""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.dsl.extents import exactly, touched
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.lds import Ring


def laid_out(
    ring: Ring, areas: Sequence[tuple[int, int]], *, waves: int, width: int, extra: int = 0
) -> Ring:
    """A ring whose tile operations take for `areas` (rows, bytes of a row), fetched by so many
    waves and read `width` bytes a lane, with `extra` bytes behind them. ScheduleError for another
    one."""
    place = f"{ring.place}: " * bool(ring.place)
    shapes = [(area.layout.rows, area.layout.row_bytes) for area in ring.areas]
    if shapes != list(areas):
        raise ScheduleError(
            f"{place}a tile of ring {ring.name!r} has {_told(shapes)}, operations touch exactly "
            f"{_told(areas)}"
        )
    widths = {area.plan.width for area in ring.areas}
    if widths != {width}:
        raise ScheduleError(
            f"{place}ring {ring.name!r} is read by {max(widths)} bytes a lane, operations "
            f"read it by {width}"
        )
    return touched(
        ring, exactly("waves", waves, "that fetch it"), exactly("extra", extra, "bytes of a slot")
    )


def _told(areas: Sequence[tuple[int, int]]) -> str:
    """Areas as a sentence lists them, equal ones together."""
    runs: list[tuple[tuple[int, int], int]] = []
    for area in areas:
        if runs and runs[-1][0] == area:
            runs[-1] = (area, runs[-1][1] + 1)
        else:
            runs.append((area, 1))
    return ", ".join(
        (f"{count} areas of " if count > 1 else "") + f"{rows} rows x {row} bytes"
        for (rows, row), count in runs
    ) or "no area"  # fmt: skip
