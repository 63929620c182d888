"""Rows of griddepcontrol, clusterlaunchcontrol, setmaxnreg, mapa, getctarank, tensormap."""

from __future__ import annotations

import math

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import cancelling as c
from mlagen.emulator.ptx.agents import editing as e
from mlagen.emulator.ptx.agents import launching as g
from mlagen.emulator.ptx.translate.agents.agent_operands import (
    SHARED,
    counted,
    known,
    number,
    operand,
    operands,
)
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.ptx import Entry, Instruction, Vector

_LEAST, _MOST, _STEP = 24, 256, 8  # registers: PTX ISA 9.0, setmaxnreg
_GROUP = 128  # threads of four warps


def _grid(t: Translator, i: Instruction) -> Row:
    if i.parts[1:] == ("wait",):
        return Row(y.X_LAUNCH, g.GRID_WAIT)
    if i.parts[1:] == ("launch_dependents",):
        return Row(y.X_LAUNCH, g.GRID_LAUNCH)
    raise not_modelled(i)


def _registers(t: Translator, i: Instruction) -> Row:
    known(i, {"inc", "dec", "sync", "aligned", "u32"})
    count = i.operands[0]
    if not isinstance(count, int) or not _LEAST <= count <= _MOST or count % _STEP:
        raise not_modelled(i, f"registers are {_LEAST} to {_MOST} by {_STEP}s")
    op = g.INCREASE if "inc" in i.parts else g.DECREASE
    return Row(y.X_LAUNCH, op, immediate=count, type=_at_launch(t.entry), aligned=True)


def _at_launch(entry: Entry) -> int:
    """Registers that ptxas lets a thread begin with; 0 where the kernel's text does not say. All
    of a multiprocessor's for as many blocks as are to be there, by eights; as whole groups of four
    warps have them (ptxas 13.0: 168 for .maxntid 384, 128 for .maxntid 256 with .minnctapersm 2).
    """
    if entry.max_registers or not entry.block:
        return entry.max_registers
    threads = -(-math.prod(entry.block) // _GROUP) * _GROUP * max(entry.min_blocks, 1)
    return min(g.REGISTERS // threads // _STEP * _STEP, 255)


def _mapa(t: Translator, i: Instruction) -> Row:
    known(i, {"u32", "u64", *SHARED})
    shared = "shared::cluster" in i.parts
    flags = 0 if shared else g.GENERIC
    if i.name == "mapa":
        counted(i, 3, 3)
        flags |= g.WIDE if "u64" in i.parts else 0
    else:
        counted(i, 2, 2)
    op = g.MAPA if i.name == "mapa" else g.RANK
    dst = t.register(i.operands[0], 64 if flags & g.WIDE else 32)
    if dst == y.NONE:
        raise not_modelled(i, "it has no result")
    return Row(y.X_LAUNCH, op, dst=dst, flags=flags, items=operands(t, i.operands[1:]))


_FIELDS = {
    "global_address": e.ADDRESS,
    "rank": e.RANK,
    "elemtype": e.ELEMENT,
    "interleave_layout": e.INTERLEAVE,
    "swizzle_mode": e.SWIZZLE,
    "fill_mode": e.FILL,
    "box_dim": e.BOX,
    "global_dim": e.DIM,
    "global_stride": e.STRIDE,
    "element_stride": e.STEP,
}


def _tensormap(t: Translator, i: Instruction) -> Row:
    if i.parts[1:2] == ("cp_fenceproxy",):
        known(
            i,
            {"cp_fenceproxy", "global", "tensormap::generic", "release", "sync", "aligned"}
            | {"cta", "cluster", "gpu", "sys", *SHARED},
        )
        counted(i, 3, 3)
        return Row(y.X_LAUNCH, g.COPY_MAP, items=operands(t, i.operands[:2]), aligned=True)
    known(i, {"replace", "tile", "global", "b1024", "b32", "b64", *SHARED, *_FIELDS})
    field = next((_FIELDS[part] for part in i.parts if part in _FIELDS), -1)
    if field < 0:
        raise not_modelled(i)
    ordinal = field >= e.BOX
    counted(i, 2 + ordinal, 2 + ordinal)
    axis = operand(t, i.operands[1]) if ordinal else number(0)
    items = operand(t, i.operands[0]) + axis + operand(t, i.operands[-1])
    in_shared = any(part in SHARED for part in i.parts)
    return Row(
        y.X_LAUNCH, g.REPLACE, type=field, items=items, flags=0 if in_shared else e.IN_GLOBAL
    )


_ANSWER = "mbarrier::complete_tx::bytes"
_ALL = "multicast::cluster::all"
_AXES = {f"get_first_ctaid::{axis}": n for n, axis in enumerate("xyz")}


def _cancel(t: Translator, i: Instruction) -> Row:
    """clusterlaunchcontrol."""
    if i.parts[1:2] == ("try_cancel",):
        known(i, {"try_cancel", "async", "b128", _ANSWER, _ALL, *SHARED})
        counted(i, 2, 2)
        if _ANSWER not in i.parts:
            raise not_modelled(i, "its completion")
        flags = c.EVERYWHERE if _ALL in i.parts else 0
        return Row(y.X_LAUNCH, g.CANCEL, flags=flags, items=operands(t, i.operands))
    counted(i, 2, 2)
    source = t.register(i.operands[1], 128)
    if i.parts[1:] == ("query_cancel", "is_canceled", "pred", "b128"):
        dst = t.register(i.operands[0], 1)
        if y.NONE in (source, dst):
            raise not_modelled(i, "it has no result")
        return Row(y.X_LAUNCH, g.QUERY, a=source, dst=dst)
    known(i, {"query_cancel", "get_first_ctaid", "v4", "b32", "b128", *_AXES})
    axis = next((_AXES[part] for part in i.parts if part in _AXES), -1)
    into = i.operands[0]
    items = into.items if isinstance(into, Vector) else (into,)
    if source == y.NONE or len(items) != (4 if axis < 0 else 1):
        raise not_modelled(i, "its registers")
    places = [t.register(item, 32) for item in items]
    return Row(y.X_LAUNCH, g.QUERY, a=source, immediate=max(axis, 0), items=places)


TRANSLATIONS: dict[str, Translation] = {
    "griddepcontrol": _grid,
    "setmaxnreg": _registers,
    "mapa": _mapa,
    "getctarank": _mapa,
    "tensormap": _tensormap,
    "clusterlaunchcontrol": _cancel,
}
