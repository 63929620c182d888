"""The language a schedule is written in: what all targets know. It knows no attention.

A schedule says which operations its tile loop holds and what stands around it. How roles share
work, what lies in their memory and what they wait for differs from target to target: those words
are in `mlagen.targets.gfx950.dsl` and `mlagen.targets.nvidia.dsl`. Nothing here prints assembly.
"""

from mlagen.dsl.builder import Cluster
from mlagen.dsl.extents import Extent, at_least, exactly, touched
from mlagen.dsl.function import ScheduleBase, ScheduleFunction, schedule
from mlagen.dsl.knobs import Config, Knob, Knobs
from mlagen.dsl.operation import Access, Binding, Interleave, Operation
from mlagen.dsl.plain import Part, PipelineOrder, PlainOrder, by
from mlagen.dsl.signature import KernelArgument, Signature
from mlagen.dsl.tile import RingTile, Tile, Value
from mlagen.dsl.variant import Variant
from mlagen.dsl.words import bind, copy, each_item, epilogue, prologue, record, tiles

Argument = KernelArgument  # its name of version 0.1

__all__ = [
    "Access",
    "Argument",
    "Binding",
    "Cluster",
    "Config",
    "Extent",
    "Interleave",
    "KernelArgument",
    "Knob",
    "Knobs",
    "Operation",
    "Part",
    "PipelineOrder",
    "PlainOrder",
    "RingTile",
    "ScheduleBase",
    "ScheduleFunction",
    "Signature",
    "Tile",
    "Value",
    "Variant",
    "at_least",
    "bind",
    "by",
    "copy",
    "each_item",
    "epilogue",
    "exactly",
    "prologue",
    "record",
    "schedule",
    "tiles",
    "touched",
]
