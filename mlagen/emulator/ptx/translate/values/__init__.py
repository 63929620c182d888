"""Rows of instructions that compute values: by the opcode's name, and where several kinds of types
share one, by its type."""

from __future__ import annotations

from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator
from mlagen.emulator.ptx.translate.values import convert, floats, integers, move_rows, select
from mlagen.ptx import Instruction


def _by_type(name: str) -> Translation:
    """One of the translations of that name."""

    def chosen(t: Translator, i: Instruction) -> Row:
        if i.parts[-1] == "pred":
            return select.logic(t, i)
        table = floats if floats.is_float(i.parts[-1]) else integers
        translation = table.TRANSLATIONS.get(name)
        return (translation or _TABLE[name])(t, i)

    return chosen


_TABLE: dict[str, Translation] = {
    **integers.TRANSLATIONS,
    **floats.TRANSLATIONS,
    **convert.TRANSLATIONS,
    **select.TRANSLATIONS,
    **move_rows.TRANSLATIONS,
}
_SHARED = ("add", "sub", "mul", "mad", "div", "min", "max", "abs", "neg", "and", "or", "xor", "not")

TRANSLATIONS: dict[str, Translation] = {
    **_TABLE,
    **{name: _by_type(name) for name in (*_SHARED, "mov")},
}
