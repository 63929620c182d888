"""Rows of cp.async, bulk copies, st.async and red.async, and of their groups."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents import copies as c
from mlagen.emulator.ptx.agents import groups as g
from mlagen.emulator.ptx.agents import reductions as r
from mlagen.emulator.ptx.translate.agents.agent_operands import (
    SHARED,
    counted,
    known,
    number,
    operand,
    operands,
)
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Vector

REDUCTIONS = {
    "add": r.ADD,
    "min": r.MIN,
    "max": r.MAX,
    "inc": r.INC,
    "dec": r.DEC,
    "and": r.AND,
    "or": r.OR,
    "xor": r.XOR,
}
TYPES = {
    "b32": a.T_U32,
    "u32": a.T_U32,
    "s32": a.T_S32,
    "b64": a.T_U64,
    "u64": a.T_U64,
    "s64": a.T_S64,
    "f16": a.T_F16,
    "bf16": a.T_BF16,
    "f32": a.T_F32,
    "f64": a.T_F64,
}
_HINTS = {"L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"}
_FLOATS = {"f16", "bf16", "f32", "f64"}
BYTES = "mbarrier::complete_tx::bytes"
# Which reductions a type has (PTX ISA 9.0, cp.reduce.async.bulk).
_OF_TYPE = {
    "f16": {"add", "min", "max"},
    "bf16": {"add", "min", "max"},
    "f32": {"add"},
    "f64": {"add"},
    "b32": {"and", "or", "xor"},
    "b64": {"and", "or", "xor"},
    "u32": {"add", "min", "max", "inc", "dec"},
    "s32": {"add", "min", "max"},
    "u64": {"add", "min", "max"},
    "s64": {"add", "min", "max"},
}


def lanes(t: Translator, i: Instruction) -> Row:
    """cp.async of a lane, its groups, and its arrival."""
    if i.parts[1:2] != ("async",):
        raise not_modelled(i)
    if "commit_group" in i.parts:
        return Row(y.X_GROUP, g.COMMIT)
    if "wait_all" in i.parts:
        return Row(y.X_GROUP, g.WAIT_ALL)
    if "wait_group" in i.parts:
        return Row(y.X_GROUP, g.WAIT, immediate=_kept(i))
    if "mbarrier" in i.parts:
        known(i, {"async", "mbarrier", "arrive", "noinc", "b64", *SHARED})
        flags = c.NO_INCREMENT if "noinc" in i.parts else 0
        return Row(y.X_COPY, c.ARRIVAL, flags=flags, items=operands(t, i.operands))
    known(i, {"async", "ca", "cg", "global", *SHARED, *_HINTS})
    values = list(i.operands)
    if "L2::cache_hint" in i.parts:
        values.pop()
    if not 3 <= len(values) <= 4 or values[2] not in (4, 8, 16):
        raise not_modelled(i, "cp-size")
    row = Row(y.X_COPY, c.LANES, immediate=int(values[2]))
    size = number(row.immediate)
    if len(values) == 4:
        last = values[3]
        name = last.lstrip("!") if isinstance(last, str) else ""
        if name in t.places and t.width(name) == 1:
            row.flags, row.c, row.type2 = c.IGNORES, t.register(name, 1), int(name != last)
        else:
            size = operand(t, last)
    row.items = operands(t, values[:2]) + size
    return row


def _kept(i: Instruction) -> int:
    counted(i, 1, 1)
    kept = i.operands[0]
    if not isinstance(kept, int) or not 0 <= kept < 1 << 32:
        raise not_modelled(i, "the number of groups")
    return kept


def bulk_groups(t: Translator, i: Instruction) -> Row:
    """Commits and waits of bulk groups."""
    known(i, {"async", "bulk", "commit_group", "wait_group", "read"})
    if "commit_group" in i.parts:
        return Row(y.X_GROUP, g.BULK_COMMIT)
    flags = g.READ if "read" in i.parts else 0
    return Row(y.X_GROUP, g.BULK_WAIT, immediate=_kept(i), flags=flags)


def _reduction(i: Instruction, row: Row) -> None:
    """The operation and the type of a reduction."""
    how = [part for part in i.parts if part in REDUCTIONS]
    types = [part for part in i.parts if part in TYPES]
    if len(how) != 1 or len(types) != 1 or how[0] not in _OF_TYPE[types[0]]:
        raise not_modelled(i, "the operation and the type do not fit")
    row.type, row.type2 = REDUCTIONS[how[0]], TYPES[types[0]]


def bulk(t: Translator, i: Instruction) -> Row:
    """cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.prefetch."""
    if "prefetch" in i.parts:
        known(i, {"async", "bulk", "prefetch", "L2", "global", "L2::cache_hint"})
        return Row(y.X_NOP)
    reduces = i.parts[1] == "reduce"
    more = {"reduce", "noftz", *REDUCTIONS, *TYPES} if reduces else {"cp_mask"}
    known(
        i,
        {"async", "bulk", "global", "bulk_group", BYTES, "multicast::cluster", "L2::cache_hint"}
        | {*SHARED, *more},
    )
    spaces = [part for part in i.parts if part == "global" or part in SHARED]
    if len(spaces) != 2:
        raise not_modelled(i, "its state spaces")
    values = list(i.operands)
    if spaces[0] == "global":
        row = Row(y.X_COPY, c.STORE)
        wanted = 3
        if "cp_mask" in i.parts:
            row.flags, wanted = c.MASKED, 4
            if "L2::cache_hint" in i.parts:
                values.pop(3)
    else:
        row = Row(y.X_COPY, c.LOAD if spaces[1] == "global" else c.SEND)
        wanted = 4
        if "multicast::cluster" in i.parts:
            row.flags, wanted = c.MULTICAST, 5
        if BYTES not in i.parts:
            raise not_modelled(i, "its completion")
    if reduces:
        _reduction(i, row)
    if not wanted <= len(values) <= wanted + 1:
        raise not_modelled(i, f"{len(values)} operands")
    row.items = operands(t, values[:wanted])
    return row


def words(t: Translator, i: Instruction) -> Row:
    """st.async and red.async."""
    counted(i, 3, 3)
    reduces = i.name == "red"
    more = {*REDUCTIONS, "relaxed", "cluster"} if reduces else {"weak", "v2", "v4"}
    known(i, {"async", "shared::cluster", BYTES, *TYPES, *more})
    value = i.operands[1]
    items = list(value.items) if isinstance(value, Vector) else [value]
    types = [part for part in i.parts if part in TYPES]
    wanted = 4 if "v4" in i.parts else 2 if "v2" in i.parts else 1
    if BYTES not in i.parts or len(types) != 1 or len(items) != wanted:
        raise not_modelled(i)
    element = 8 if types[0].endswith("64") else 4
    if types[0] in ("f16", "bf16") or element * wanted > 16 * (1 + (element == 8)):
        raise not_modelled(i, f".{types[0]}")
    row = Row(y.X_COPY, c.WORDS, immediate=wanted | element << 8, flags=y.IN_GENERIC)
    if reduces:
        if types[0] in _FLOATS:
            raise not_modelled(i, f".{types[0]}")
        _reduction(i, row)
    row.items = operands(t, (i.operands[0], i.operands[2], *items))
    return row
