"""Copies that fetch a tile's rows by their numbers: gather4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlagen.dsl import Access, Operation, RingTile, Tile
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, TmaTile, WarpRole

ROWS = 4  # of one instruction, and of a lane

Gather = tuple[TmaTile, str, str | int]  # tile, tensor map, first column
Box = tuple[TmaTile, str, str | int, str]  # tile, tensor map, first column, first row


def gather4(
    pipeline: Pipeline,
    tile: Tile,
    role: WarpRole,
    rows: Sequence[str],
    gathers: Sequence[Gather],
    boxes: Sequence[Box] = (),
    steps: Sequence[tuple[str, int]] = (),
) -> Operation:
    """The copy of a tile by the one warp of `role`: rows by number, and boxes besides.

    `rows`: four registers, in which lane l has the numbers of the tile's rows 4 l .. 4 l + 3; a
    negative one, or one past the tensor, arrives as zeros. Tensor maps of `gathers` have boxes of
    one row. `steps`: what is added to registers after it. ScheduleError for more rows than a warp
    has lanes for.
    """
    most = ROWS * role.threads
    if len(role.warps) != 1 or role.single or len(rows) != ROWS:
        raise ScheduleError(
            f"role {role.name!r} of {role.threads} threads gathers {pipeline.name!r} with "
            f"{len(rows)} row numbers a lane",
            hint=f"one warp does, each lane with the numbers of {ROWS} rows",
        )
    for part, _, _ in gathers:
        if part.rows > most:
            raise ScheduleError(
                f"tile {part.name!r} has {part.rows} rows; a warp gathers {most}",
                hint="smaller tiles, or several pipelines with a role each",
            )
    context: dict[str, Any] = {
        "pipeline": pipeline, "role": role, "rows": list(rows), "gathers": list(gathers),
        "boxes": list(boxes), "steps": list(steps),
    }  # fmt: skip
    return Operation(
        "copy", "pipeline/gather4.ptx.j2", tile, lambda at: context,
        access=Access("copy", RingTile(pipeline.name, tile)),
    )  # fmt: skip
