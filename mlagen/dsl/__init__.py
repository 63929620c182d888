"""The language a schedule is written in. It knows no attention.

A schedule declares LDS rings, register blocks and roles, then says which operations each cluster
of the tile loop holds. Nothing here prints assembly: `mlagen.codegen` turns the `Schedule` value
into a program.
"""

from mlagen.dsl.builder import Cluster
from mlagen.dsl.clusters import Schedule, Space
from mlagen.dsl.entry import Entry
from mlagen.dsl.function import ScheduleFunction, schedule
from mlagen.dsl.knobs import Knob, Knobs
from mlagen.dsl.layout import Padded, Subtiled, TileLayout, Xor
from mlagen.dsl.lds import Area, Lds, Reads, Ring, RingTile
from mlagen.dsl.operation import Access, Binding, Interleave, Operation
from mlagen.dsl.pipeline import PipelineSchedule, PipelineSpace, Stream, WarpRole, release
from mlagen.dsl.plain import Part, PipelineOrder, PlainOrder, by
from mlagen.dsl.registers import Block, Registers, Regs, ScalarRegs, Value
from mlagen.dsl.roles import Role, Roles
from mlagen.dsl.signature import Argument, Signature
from mlagen.dsl.smem import Exchange, Pipeline, Smem, TmaTile
from mlagen.dsl.tile import Tile
from mlagen.dsl.wait import Wait
from mlagen.dsl.words import (
    bind,
    cluster,
    copy,
    each_item,
    epilogue,
    interleave,
    only,
    prologue,
    read,
    record,
    roles,
    tiles,
)

__all__ = [
    "Access",
    "Area",
    "Argument",
    "Binding",
    "Block",
    "Cluster",
    "Entry",
    "Exchange",
    "Interleave",
    "Knob",
    "Knobs",
    "Lds",
    "Operation",
    "Padded",
    "Part",
    "Pipeline",
    "PipelineOrder",
    "PipelineSchedule",
    "PipelineSpace",
    "PlainOrder",
    "Reads",
    "Registers",
    "Regs",
    "Ring",
    "RingTile",
    "Role",
    "Roles",
    "ScalarRegs",
    "Schedule",
    "ScheduleFunction",
    "Signature",
    "Smem",
    "Space",
    "Stream",
    "Subtiled",
    "Tile",
    "TileLayout",
    "TmaTile",
    "Value",
    "Wait",
    "WarpRole",
    "Xor",
    "bind",
    "by",
    "cluster",
    "copy",
    "each_item",
    "epilogue",
    "interleave",
    "only",
    "prologue",
    "read",
    "record",
    "release",
    "roles",
    "schedule",
    "tiles",
]
