"""Rows of moves, packs, addresses, clocks."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.value_operands import (
    CLOCKS,
    Modifiers,
    bits_of,
    number,
    result,
    row_of,
    source,
)
from mlagen.emulator.ptx.values import moves
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Operand, Vector

_HIGH = 256  # from the row of the lower half of 128 bits to that of the upper half
_WINDOWS = {
    "global": 0,
    "shared": y.GENERIC_SHARED,
    "shared::cta": y.GENERIC_SHARED,
    "shared::cluster": y.GENERIC_SHARED,
    "local": y.GENERIC_LOCAL,
    "param": y.GENERIC_PARAM,
    "param::entry": y.GENERIC_PARAM,
    "const": y.GENERIC_CONST,
}


def _row(i: Instruction, key: str, results: list[int], sources: list[int]) -> Row:
    return row_of(y.X_MOVE, moves.COPY + number(moves.NUMBERS, key, i), results, sources)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def move(t: Translator, i: Instruction) -> Row:
    """mov of anything but predicates."""
    m = Modifiers(i)
    vector = m.one(("v2", "v4"))
    m.end()
    to, of = i.operands
    width = bits_of(m.type)
    if isinstance(of, str) and of in CLOCKS:
        kind = 64 if of in ("%clock64", "%globaltimer") else 32
        if kind != width:
            raise not_modelled(i, f"{of} has {kind} bits")
        where = result(t, i, to, width)
        return Row(y.X_MOVE, moves.CLOCK, where, type=width, immediate=CLOCKS[of])
    results, sources = _items(to), _items(of)
    if width == 128:
        return _move128(t, i, results, sources)
    if vector or len(results) == len(sources):
        places = [result(t, i, o, width) for o in results]
        return _row(
            i,
            f"mov{max(width, 16)}.{len(results)}",
            places,
            [source(t, i, o, width) for o in sources],
        )
    part = width // max(len(results), len(sources))
    if len(sources) > 1:
        values = [source(t, i, o, part) for o in sources]
        return _row(i, f"pack{width}.{len(sources)}", [result(t, i, to, width)], values)
    places = [result(t, i, o, part) for o in results]
    return _row(i, f"unpack{width}.{len(results)}", places, [source(t, i, of, width)])


def _move128(
    t: Translator, i: Instruction, results: tuple[Operand, ...], sources: tuple[Operand, ...]
) -> Row:
    """128 bits are two rows of 64."""
    if len(results) > 2 or len(sources) > 2:
        raise not_modelled(i, "b128 in four parts")

    def rows(items: tuple[Operand, ...], place: object) -> list[int]:
        if len(items) == 2:
            return [place(t, i, o, 64) for o in items]  # type: ignore[operator]
        where = place(t, i, items[0], 128)  # type: ignore[operator]
        return [where, where + _HIGH if where >= 0 else where - _HIGH]

    return _row(i, "mov64.2", rows(results, result), rows(sources, source))


def _permute(t: Translator, i: Instruction) -> Row:
    if i.parts[1:2] != ("b32",) or len(i.parts) > 3 or len(i.operands) != 4:
        raise not_modelled(i)
    mode = f".{i.parts[2]}" if len(i.parts) == 3 else ""
    places = [source(t, i, o, 32) for o in i.operands[1:]]
    return _row(i, f"prmt{mode}", [result(t, i, i.operands[0], 32)], places)


def _convert_address(t: Translator, i: Instruction) -> Row:
    """cvta: to a generic address and back."""
    m = Modifiers(i)
    back = m.flag("to")
    space = m.one(_WINDOWS)
    m.end()
    if m.type != "u64" or not space:
        raise not_modelled(i, "addresses of 64 bits are")
    places = [source(t, i, i.operands[1], 64)]
    found = _row(i, "offset", [result(t, i, i.operands[0], 64)], places)
    found.immediate = -_WINDOWS[space] if back else _WINDOWS[space]
    return found


def _policy(t: Translator, i: Instruction) -> Row:
    """createpolicy: caches have no effect here."""
    return _row(i, "mov64.1", [result(t, i, i.operands[0], 64)], [t.constant(0, 64)])


def _sleep(t: Translator, i: Instruction) -> Row:
    Modifiers(i).end()
    source(t, i, i.operands[0], 32)
    return Row(y.X_MOVE, moves.SLEEP)


TRANSLATIONS: dict[str, Translation] = {
    "mov": move,
    "prmt": _permute,
    "cvta": _convert_address,
    "createpolicy": _policy,
    "nanosleep": _sleep,
}
