"""Rows of ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.translate.memory.modifiers import (
    SPACES,
    address,
    destination,
    operands,
    source,
)
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction, Vector

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_SHARED = (z.SHARED_CTA, z.SHARED_CLUSTER)


def _moved(t: Translator, i: Instruction) -> Row:
    """ldmatrix and stmatrix. The order of shape and count is not the same in all that write it."""
    count, space, flags = 0, z.GENERIC, 0
    left = {"sync", "aligned", "m8n8", "b16"}
    for part in i.parts[1:]:
        if part in left:
            left.remove(part)
        elif part in _COUNTS and not count:
            count = _COUNTS[part]
        elif part == "trans" and not flags:
            flags = z.TRANSPOSED
        elif SPACES.get(part) in _SHARED and space == z.GENERIC:
            space = SPACES[part]
        else:
            raise not_modelled(i, f"matrices of 8 x 8 elements of 16 bits are; .{part} is not")
    if left or not count:
        raise not_modelled(i, "it lacks ." + ", .".join(sorted(left) or ["x1, .x2 or .x4"]))
    first, second = operands(i, 2, False)
    loads = i.name == "ldmatrix"
    memory, registers = (second, first) if loads else (first, second)
    items = registers.items if isinstance(registers, Vector) else (registers,)
    if len(items) != count:
        raise not_modelled(i, f"{len(items)} registers for {count} matrices")
    reach = destination if loads else source
    places = [reach(t, i, item, 32) for item in items]
    if any(bits != 32 for _, bits in places):
        raise not_modelled(i, "its registers have not 32 bits")
    at = address(t, i, memory, space)
    return Row(
        y.X_MATRIX_MOVE,
        z.LDMATRIX if loads else z.STMATRIX,
        a=at.a,
        type=at.space,
        type2=at.bits,
        immediate=at.offset,
        flags=flags,
        items=[place for place, _ in places],
        aligned=True,
    )


def _transposed(t: Translator, i: Instruction) -> Row:
    if i.parts[1:] != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise not_modelled(i, "no form of it that is known")
    result, given = operands(i, 2, False)
    (dst, wide), (a, bits) = destination(t, i, result, 32), source(t, i, given, 32)
    if dst == y.NONE or (wide, bits) != (32, 32):
        raise not_modelled(i, "its registers have not 32 bits")
    return Row(y.X_MATRIX_MOVE, z.MOVMATRIX, dst=dst, a=a, aligned=True)


TRANSLATIONS = {"ldmatrix": _moved, "stmatrix": _moved, "movmatrix": _transposed}
