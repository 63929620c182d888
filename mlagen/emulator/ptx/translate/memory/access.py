"""Rows of loads, stores and of what only hints at accesses."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.translate.memory.modifiers import (
    Words,
    address,
    columns,
    destination,
    items_of,
    operands,
    source,
    words,
)
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import MemoryOperand, Operand

_LOAD = ("ca", "cg", "cs", "lu", "cv", "nc", "unified")
_STORE = ("wb", "cg", "cs", "wt")
_TYPES = frozenset(
    {"b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"}
    | {"f32", "f64"}
)
_WIDEST = 32  # bytes of a lane


def _check(i: Instruction, w: Words) -> None:
    """Refuses types and sizes that no load or store has."""
    if w.type not in _TYPES:
        raise not_modelled(i, f"no access is of .{w.type}")
    size = w.items * w.bytes
    if size > _WIDEST or (size > 16 and w.bytes not in (4, 8)):
        raise not_modelled(i, f"a lane accesses {_WIDEST} bytes at most, over 16 as v8.b32, v4.b64")


def _row(t: Translator, i: Instruction, kind: int, w: Words, memory: Operand) -> Row:
    _check(i, w)
    at = address(t, i, memory, w.space)
    flags = w.flags | (z.SIGNED if w.type.startswith("s") else 0)
    return Row(
        kind,
        w.bytes,
        a=at.a,
        type=at.space,
        type2=at.bits,
        immediate=at.offset,
        flags=flags,
        aux=(w.items, 0, w.bytes),
    )


def _load(t: Translator, i: Instruction) -> Row:
    w = words(i, _LOAD, ("weak", "volatile", "mmio", "relaxed", "acquire"))
    result, memory = operands(i, 2, w.hinted)
    row = _row(t, i, y.X_LOAD, w, memory)
    if "nc" in w.left and row.type not in (z.GLOBAL, z.GENERIC):
        raise not_modelled(i, ".nc is of global memory")
    items = items_of(i, result, w.items)
    row.items = columns(destination(t, i, item, 8 * w.bytes) for item in items)
    return row


def _store(t: Translator, i: Instruction) -> Row:
    if i.parts[1:2] in (("param",), ("param::func",)) and not _inlined(t, i):
        return _argument(t, i)
    w = words(i, _STORE, ("weak", "volatile", "mmio", "relaxed", "release"))
    memory, value = operands(i, 2, w.hinted)
    row = _row(t, i, y.X_STORE, w, memory)
    if row.type in (z.PARAM, z.CONST):
        raise not_modelled(i, "it writes to memory that a kernel only reads")
    items = items_of(i, value, w.items)
    row.items = columns(source(t, i, item, 8 * w.bytes) for item in items)
    return row


def _inlined(t: Translator, i: Instruction) -> bool:
    """Whether an instruction names the parameter of a function whose body is in the kernel."""
    memory = i.operands[0]
    return isinstance(memory, MemoryOperand) and t.symbols.get(memory.base, ("",))[0] == "local"


def _argument(t: Translator, i: Instruction) -> Row:
    """A store to the parameter of a call. What the call does with it is the call's."""
    memory = i.operands[0]
    if not isinstance(memory, MemoryOperand) or memory.base in t.symbols or memory.base in t.places:
        raise not_modelled(i, "it writes to memory that a kernel only reads")
    return Row(y.X_NOP)


def _hint(t: Translator, i: Instruction) -> Row:
    """prefetch, prefetchu and applypriority change no value; discard makes one undefined."""
    return Row(y.X_NOP)


TRANSLATIONS = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "prefetch": _hint,
    "prefetchu": _hint,
    "applypriority": _hint,
    "discard": _hint,
}
