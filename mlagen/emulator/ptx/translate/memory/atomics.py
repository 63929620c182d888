"""Rows of atom and red."""

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

_OPS = {
    "add": z.ADD,
    "min": z.MIN,
    "max": z.MAX,
    "inc": z.INC,
    "dec": z.DEC,
    "and": z.AND,
    "or": z.OR,
    "xor": z.XOR,
    "exch": z.EXCH,
    "cas": z.CAS,
}
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_WHOLE = ("u32", "s32", "u64", "s64")
_TYPES = {
    "add": (*_WHOLE, "f32", "f64", *_HALVES),
    "min": (*_WHOLE, *_HALVES),
    "max": (*_WHOLE, *_HALVES),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
}
_ARITHMETIC = {
    "f32": z.F32,
    "f64": z.F64,
    "f16": z.F16,
    "bf16": z.BF16,
    "f16x2": z.F16X2,
    "bf16x2": z.BF16X2,
    "s32": z.SIGNED_INTEGER,
    "s64": z.SIGNED_INTEGER,
}
_VECTORS = {"f32": (2, 4), "f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (2, 4), "bf16x2": (2, 4)}
_SPACES = (z.GENERIC, z.GLOBAL, z.SHARED_CTA, z.SHARED_CLUSTER)


def _operation(i: Instruction, w: Words) -> str:
    """The name of the operation, where its modifiers go together."""
    found = [word for word in w.left if word in _OPS]
    if len(found) != 1:
        raise not_modelled(i, "it names not one operation")
    (op,) = found
    if w.type not in _TYPES[op]:
        raise not_modelled(i, f".{op} of .{w.type} is none of the ISA's")
    half = w.type in _HALVES
    if half != ("noftz" in w.left):
        raise not_modelled(i, "16-bit floats have .noftz, and nothing else has")
    if w.items > 1 and w.items not in _VECTORS.get(w.type, ()):
        raise not_modelled(i, f"a vector of {w.items} of .{w.type} is none of the ISA's")
    if half and op != "add" and w.items == 1:
        raise not_modelled(i, f".{op} of .{w.type} is of vectors")
    if w.items > 1 and w.space not in (z.GLOBAL, z.GENERIC):
        raise not_modelled(i, "vectors are of global memory")
    return op


def _atomic(t: Translator, i: Instruction) -> Row:
    w = words(i, (*_OPS, "noftz"), ("relaxed", "acquire", "release", "acq_rel"))
    op = _operation(i, w)
    gives = i.name == "atom"
    if not gives and op in ("exch", "cas"):
        raise not_modelled(i, f"red has no .{op}")
    given = operands(i, (3 if op == "cas" else 2) + gives, w.hinted)
    result, memory, *sources = given if gives else ("_", *given)
    at = address(t, i, memory, w.space)
    if at.space not in _SPACES:
        raise not_modelled(i, "atomics are of global and shared memory")
    bits = 8 * w.bytes
    results = [result] * w.items if result == "_" else items_of(i, result, w.items)
    listed = columns(destination(t, i, item, bits) for item in results)
    for operand in sources:
        items = items_of(i, operand, w.items)
        listed += columns(source(t, i, item, bits) for item in items)
    return Row(
        y.X_ATOMIC,
        _OPS[op],
        a=at.a,
        type=at.space,
        type2=at.bits,
        immediate=at.offset,
        flags=w.flags,
        items=listed,
        aux=(w.items, _ARITHMETIC.get(w.type, z.UNSIGNED), w.bytes),
    )


TRANSLATIONS = {"atom": _atomic, "red": _atomic}
