"""gfx950's own words: roles that share one stream of clusters, rings in LDS, registers, waits."""

from mlagen.targets.gfx950.dsl.clusters import Schedule, Space
from mlagen.targets.gfx950.dsl.entry import EntryRegisters
from mlagen.targets.gfx950.dsl.exchange import Exchange
from mlagen.targets.gfx950.dsl.laid_out import laid_out
from mlagen.targets.gfx950.dsl.layout import Padded, Subtiled, TileLayout, Xor
from mlagen.targets.gfx950.dsl.lds import Area, Lds, Reads, Ring
from mlagen.targets.gfx950.dsl.registers import Block, Registers, Regs, ScalarRegs
from mlagen.targets.gfx950.dsl.roles import Role, Roles
from mlagen.targets.gfx950.dsl.wait import Wait
from mlagen.targets.gfx950.dsl.words import cluster, interleave, only, read, roles

__all__ = [
    "Area",
    "Block",
    "EntryRegisters",
    "Exchange",
    "Lds",
    "Padded",
    "Reads",
    "Registers",
    "Regs",
    "Ring",
    "Role",
    "Roles",
    "ScalarRegs",
    "Schedule",
    "Space",
    "Subtiled",
    "TileLayout",
    "Wait",
    "Xor",
    "cluster",
    "interleave",
    "laid_out",
    "only",
    "read",
    "roles",
]
