"""Rows of cvt."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.value_operands import (
    FLOATS,
    Modifiers,
    bits_of,
    number,
    result,
    row_of,
    source,
)
from mlagen.emulator.ptx.values import convert as c
from mlagen.emulator.ptx.values.formats import RN, ROUNDINGS, RZ
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Operand

_WHOLE = frozenset(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))
_INTEGRAL = {"rni": RN, "rzi": RZ, "rmi": ROUNDINGS["rm"], "rpi": ROUNDINGS["rp"]}
_SMALL = frozenset(c.BYTES)
_PAIRS = frozenset({"f16x2", "bf16x2", "ue8m0x2", *(f"{name}x2" for name in _SMALL)})


def _convert(t: Translator, i: Instruction) -> Row:
    if i.parts[1:2] == ("pack",):
        return _pack(t, i)
    m = Modifiers(i, types=2)
    to, of = m.types
    if to in _PAIRS or of in _PAIRS or to == "tf32":
        return _packed(t, i, m)
    if to in _WHOLE and of in _WHOLE:
        return _whole(t, i, m)
    if to not in _WHOLE | FLOATS or of not in _WHOLE | FLOATS:
        raise not_modelled(i)
    return _number(t, i, m)


def _register(t: Translator, i: Instruction, operand: Operand, bits: int) -> tuple[int, int]:
    """Place and bits of a register of integers, which may be wider than the type."""
    have = t.width(operand)
    if operand == "_":
        return t.hidden("sink", 512), bits
    if have < bits or have == 128:
        raise not_modelled(i, f"{operand} has {have} bits, not {bits}")
    return t.places[str(operand)], have


def _integer_source(t: Translator, i: Instruction, operand: Operand, kind: str) -> tuple[int, int]:
    """Place and bits of a row with an integer; 8 and 16 bits lie in rows of 32."""
    bits = bits_of(kind)
    if isinstance(operand, str) and operand in t.places:
        where, have = _register(t, i, operand, bits)
        return where, 64 if have == 64 else 32
    if isinstance(operand, str) and operand.startswith("%"):
        return source(t, i, operand, max(bits, 32)), max(bits, 32)
    return source(t, i, operand, bits), 64 if bits == 64 else 32


def _signs(kind: str) -> tuple[int, int]:
    """Mask and sign's bit of an integer, for 64 bits: `convert._cut`."""
    bits = bits_of(kind)
    if bits == 64:
        return -1, 0
    return (1 << bits) - 1, 1 << (bits - 1) if kind[0] == "s" else 0


def _range(kind: str) -> tuple[int, int]:
    bits = bits_of(kind)
    if kind[0] == "u":
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _word(value: int) -> int:
    """A number of 64 bits as int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _stored(have: int) -> int:
    return max(have, 16)


def _whole(t: Translator, i: Instruction, m: Modifiers) -> Row:
    """An integer as another."""
    sat = m.flag("sat")
    m.end()
    to, of = m.types
    where, size = _integer_source(t, i, i.operands[1], of)
    dst, have = _register(t, i, i.operands[0], bits_of(to))
    least, most = _range(to)
    if of != "u64":
        most = min(most, (1 << 63) - 1)
    unsigned = sat and of == "u64"
    key = f"{'uint' if unsigned else 'int'}{size}.{_stored(have)}{'.sat' if sat else ''}"
    aux = (*_signs(of), *_signs(to), least, _word(most))
    return Row(y.X_CONVERT, number(c.NUMBERS, key, i), dst, where, aux=aux)


def _number(t: Translator, i: Instruction, m: Modifiers) -> Row:
    """Between floats, and between floats and integers."""
    to, of = m.types
    rounding = m.one(ROUNDINGS)
    integral = m.one(_INTEGRAL)
    ftz, sat, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    finite = m.flag("satfinite")
    m.end()
    _check(i, to, of, rounding, integral)
    if ftz and "f32" not in (to, of):
        raise not_modelled(i, ".ftz without f32")
    if (finite or relu) and (of != "f32" or to not in c.HALVES or ftz or sat):
        raise not_modelled(i, "with .satfinite or .relu")
    direct = _direct(to, of, rounding, ftz or sat or bool(integral), relu, finite)
    if of in _WHOLE:
        where, size = _integer_source(t, i, i.operands[1], of)
    else:
        where, size = source(t, i, i.operands[1], bits_of(of), bits_of(of) > 16), 0
    dst, have = (
        _register(t, i, i.operands[0], bits_of(to))
        if to in _WHOLE
        else (result(t, i, i.operands[0], bits_of(to)), 0)
    )
    if direct and not (of in ("s32", "u32") and size == 64):
        return Row(y.X_CONVERT, number(c.NUMBERS, direct, i), dst, where)
    if to == "f64" and of in ("s64", "u64"):
        if sat:
            raise not_modelled(i, "with .sat")
        found = Row(y.X_CONVERT, c.NUMBERS[f"{to}.{of}.rounded"], dst, where)
        found.flags = ROUNDINGS[rounding]
        return found
    first = f"from.{_first(of, size, ftz)}"
    second = f"to.{_second(to, have, bool(integral), _last(to, ftz, sat, relu))}"
    least, most = _range(to) if to in _WHOLE else (0, 0)
    nan = 0
    if to in _WHOLE and (of == "f64" or bits_of(to) == 64):
        nan = 1 << bits_of(to) - 1
    mask, sign = _signs(of) if of in _WHOLE else (0, 0)
    row = t.hidden("f64", 256)
    second_number = number(c.NUMBERS, second, i)
    return Row(
        y.X_CONVERT,
        number(c.NUMBERS, first, i),
        dst,
        where,
        row,
        dst2=row,
        type=1,
        flags=_INTEGRAL[integral] if integral else ROUNDINGS.get(rounding, RN),
        aux=(mask, sign, 0, 0, least, _word(most), _word(nan), second_number),
    )


def _check(i: Instruction, to: str, of: str, rounding: str, integral: str) -> None:
    """A rounding is there where the result may need one, and nowhere else."""
    if to in _WHOLE and not integral:
        raise not_modelled(i, "to an integer without .rni, .rzi, .rmi or .rpi")
    if to in _WHOLE and rounding:
        raise not_modelled(i, f"with .{rounding}")
    if integral and of in _WHOLE:
        raise not_modelled(i, f"with .{integral}")
    narrows = of in _WHOLE or (to != of and bits_of(to) <= bits_of(of))
    if to in FLOATS and not integral and narrows and not rounding:
        raise not_modelled(i, "without a rounding")
    if integral and to in FLOATS and to != of:
        raise not_modelled(i, f"with .{integral} to another type")


def _direct(to: str, of: str, rounding: str, other: bool, relu: bool, finite: bool) -> str:
    """The key of the operation that does it in one step; "" for none."""
    if other:
        return ""
    if to in c.HALVES and of == "f32" and rounding in ("rn", "rz"):
        return f"{to}.f32.{rounding}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"
    if f"{to}.{of}" in ("f32.bf16", "f32.f16"):
        return f"{to}.{of}"
    if f"{to}.{of}" in ("f32.s32", "f32.u32", "f64.s64", "f64.u64") and rounding == "rn":
        return f"{to}.{of}"
    return ""


def _first(of: str, size: int, ftz: bool) -> str:
    if of in ("s64", "u64"):
        return of
    if of in _WHOLE:
        return "int" if size == 32 else "int64"
    return "f32.ftz" if of == "f32" and ftz else of


def _second(to: str, have: int, integral: bool, last: str) -> str:
    if to in _WHOLE:
        return to if bits_of(to) == 64 else f"int{_stored(have)}"
    return f"{to}{'.integral' if integral else ''}{'.' if last else ''}{last}"


def _last(to: str, ftz: bool, sat: bool, relu: bool) -> str:
    if to in _WHOLE:
        return ""
    parts = ["ftz"] if ftz and to == "f32" else []
    parts += ["sat"] if sat else []
    return ".".join([*parts, *(["relu"] if relu else [])])


def _packed(t: Translator, i: Instruction, m: Modifiers) -> Row:
    """Conversions to and from small formats, and to pairs of f16 and bf16."""
    to, of = m.types
    rounding = m.one(ROUNDINGS)
    finite, relu = m.flag("satfinite"), m.flag("relu")
    m.end()
    small = to.removesuffix("x2") in _SMALL
    tail = ".relu" if relu else ""
    if to in ("f16x2", "bf16x2", "tf32") and of == "f32":
        key = f"{to}.{of}.{rounding}{tail}{'.satfinite' if finite else ''}"
    elif to == "ue8m0x2":
        if relu:
            raise not_modelled(i, "with .relu")
        key = f"{to}.{of}.{rounding}{'.satfinite' if finite else ''}"
    elif small and of in ("f32", "f16x2", "bf16x2"):
        if not finite or rounding != "rn":
            raise not_modelled(i, "without .rn.satfinite")
        key = f"{to}.{of}{tail}"
    else:
        if rounding != "rn" or finite:
            raise not_modelled(i, "without .rn, or with .satfinite")
        key = f"{to}.{of}{tail}"
    places = [source(t, i, o, bits_of(of), of == "f32") for o in i.operands[1:]]
    if len(places) != (2 if of == "f32" and to != "tf32" else 1):
        raise not_modelled(i, f"{len(i.operands)} operands")
    where = result(t, i, i.operands[0], bits_of(to))
    return row_of(y.X_CONVERT, number(c.NUMBERS, key, i), [where], places)


def _pack(t: Translator, i: Instruction) -> Row:
    """cvt.pack.sat.type.s32(.b32)"""
    parts = i.parts[2:]
    if parts[:1] != ("sat",) or parts[2:] not in (("s32",), ("s32", "b32")):
        raise not_modelled(i)
    count = 3 if parts[2:] == ("s32", "b32") else 2
    if (count == 2) != (parts[1] in ("u16", "s16")) or len(i.operands) != 1 + count:
        raise not_modelled(i)
    places = [source(t, i, o, 32) for o in i.operands[1:]]
    op = number(c.NUMBERS, f"pack.{parts[1]}", i)
    return row_of(y.X_CONVERT, op, [result(t, i, i.operands[0], 32)], places)


TRANSLATIONS: dict[str, Translation] = {"cvt": _convert}
