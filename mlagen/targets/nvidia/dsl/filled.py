"""What operations are written for of tiles and pipelines: how many tiles, of which shape, and who
fills them how. Less, or another count than a template has built in, is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mlagen.dsl.extents import exactly, touched
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl.smem import SWIZZLE_ROW_BYTES, Pipeline, TmaTile

ByWarps = Literal["", "by warps", "fenced"]


def tiles_of(
    what: str, tiles: Sequence[TmaTile], count: int, *, rows: int, slots: int = 0
) -> Sequence[TmaTile]:
    """`tiles`, which operations take for `count` tiles of `rows` x SWIZZLE_ROW_BYTES, of so many
    `slots` each; 0: of any. ScheduleError for others."""
    if len(tiles) != count:
        place = f"{tiles[0].place}: " if tiles and tiles[0].place else ""
        raise ScheduleError(
            f"{place}{len(tiles)} tiles for {what}, operations touch exactly {count}: "
            f"{SWIZZLE_ROW_BYTES} bytes of its rows each"
        )
    for tile in tiles:
        touched(
            tile, exactly("rows", rows, what), exactly("row_bytes", SWIZZLE_ROW_BYTES),
            *([exactly("slots", slots, what)] if slots else []),
        )  # fmt: skip
    return tiles


def filled(pipeline: Pipeline, *, threads: int, arrive: ByWarps = "") -> Pipeline:
    """A pipeline that an operation fills with so many threads, 0: by TMA. `arrive`: once a warp,
    "by warps", which may have "fenced" what it wrote; "": all of them. ScheduleError where it is
    declared to be filled otherwise, for barriers count what arrives."""
    declared = "fenced" if pipeline.fenced else "by warps" if pipeline.by_warps else ""
    if (pipeline.producer_threads, declared) != (threads, arrive):
        raise ScheduleError(
            f"{pipeline.place}: " * bool(pipeline.place)
            + f"pipeline {pipeline.name!r} is declared to be filled "
            + f"{_told(pipeline.producer_threads, declared)}, its operations fill it "
            + _told(threads, arrive)
        )
    return pipeline


def _told(threads: int, arrive: str) -> str:
    if not threads:
        return "by TMA (producer_threads=0)"
    how = {"": "", "by warps": ", by_warps=True", "fenced": ', by_warps="fenced"'}[arrive]
    return f"by threads (producer_threads={threads}{how})"
