"""cvt: between integers and floats of all sizes, and packs of small formats.

What is common has an operation of its own. All else goes through a row of f64, which holds every
source exactly but integers of 64 bits; these are rounded to odd, which no later rounding sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import place, program_row
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.lanes import (
    LaneOperation,
    Lanes,
    numbered,
    operation,
    operations,
    real,
)

Build = Callable[..., Any]
# Words of a row: of integers the bits of the source and its sign, those of the result and its sign,
# the least and the largest result, and what a NaN becomes.
SOURCE_MASK, SOURCE_SIGN, RESULT_MASK, RESULT_SIGN, LEAST, MOST, NAN, SECOND = range(
    y.P_AUX, y.P_AUX + 8
)
HALVES = {"f16": f.F16, "bf16": f.BF16}
BYTES = {"e4m3": f.E4M3, "e5m2": f.E5M2, "e2m3": f.E2M3, "e3m2": f.E3M2, "e2m1": f.E2M1}
_WIDTHS = {"f16": "b16", "bf16": "b16", "f32": "f32", "f64": "f64"}


# ---- integers


def _cut(t: Lanes, value: Any, mask: int, sign: int) -> Any:
    """The low bits of 64, extended: a mask, and the sign's bit (0 for none)."""
    low = t.b.and_(value, t.word(mask, value.type))
    bit = t.word(sign, value.type)
    return t.b.sub(t.b.xor(low, bit), bit)


def _whole(sat: bool, unsigned: bool = False) -> Build:
    """An integer as another; `unsigned`: the source has 64 bits without sign."""

    def build(t: Lanes, a: Any) -> Any:
        value = _cut(t, t.resize(a, 64), SOURCE_MASK, SOURCE_SIGN)
        if sat:
            least, most = t.word(LEAST, value.type), t.word(MOST, value.type)
            signed = not unsigned
            if signed:
                value = t.b.select(t.compare("<", value, least, True), least, value)
            value = t.b.select(t.compare(">", value, most, signed), most, value)
        return _cut(t, value, RESULT_MASK, RESULT_SIGN)

    return build


def _into(build: Build, width: int) -> Build:
    return lambda t, *x: t.resize(build(t, *x), width)


def _pack_whole(size: int, signed: bool) -> Build:
    """cvt.pack: two integers of 32 bits, saturated, below what `c` has."""
    least = -(1 << size - 1) if signed else 0
    most = (1 << size - 1) - 1 if signed else (1 << size) - 1

    def build(t: Lanes, a: Any, b: Any, *rest: Any) -> Any:
        def cut(x: Any) -> Any:
            x = t.select(t.compare("<", x, least, True), least, x)
            x = t.select(t.compare(">", x, most, True), most, x)
            return t.and_(x, (1 << size) - 1)

        both = t.b.or_(t.shl(cut(a), size), cut(b))
        return t.b.or_(t.shl(rest[0], 2 * size), both) if rest else both

    return build


# ---- to f64


def _from_whole(t: Lanes, a: Any) -> Any:
    value = _cut(t, t.resize(a, 64), SOURCE_MASK, SOURCE_SIGN)
    return t.b.sitofp(value, t.floats(value).type)


def _from_f32(ftz: bool) -> Build:
    return lambda t, a: t.wide(t.flush(a) if ftz else a)


def _from_half(form: f.FloatFormat) -> Build:
    return lambda t, a: t.wide(f.widen(t, a, form))


# ---- from f64


def _integral(t: Lanes, x: Any) -> Any:
    """Rounded to a whole number as P_FLAGS says."""
    mode = t.word(y.P_FLAGS, t.integers(x).type)
    found = t.call("rint", x)
    for number, name in ((f.RZ, "trunc"), (f.RM, "floor"), (f.RP, "ceil")):
        found = t.b.select(t.compare("==", mode, number), t.call(name, x), found)
    return found


def _to_whole(signed64: bool, unsigned64: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        kind = t.integers(x).type
        nan = t.b.fcmp_unordered("uno", x, x)
        whole = _integral(t, x)
        if signed64 or unsigned64:
            low, high = (-(2.0**63), 2.0**63) if signed64 else (0.0, 2.0**64)
            under = t.b.fcmp_ordered("<", whole, t.const(x, low))
            over = t.b.fcmp_ordered(">=", whole, t.const(x, high))
            outside = t.b.or_(nan, t.b.or_(under, over))
            safe = t.b.select(outside, t.const(x, 0.0), whole)
            made = t.b.fptosi(safe, kind) if signed64 else t.b.fptoui(safe, kind)
            made = t.b.select(under, t.word(LEAST, kind), made)
            made = t.b.select(over, t.word(MOST, kind), made)
        else:
            least, most = (t.b.sitofp(t.word(slot, kind), x.type) for slot in (LEAST, MOST))
            safe = t.b.select(t.b.fcmp_unordered("<", whole, least), least, whole)
            safe = t.b.select(t.b.fcmp_ordered(">", safe, most), most, safe)
            made = t.b.fptosi(safe, kind)
        return t.b.select(nan, t.word(NAN, kind), made)

    return build


def _last(t: Lanes, x: Any, last: str) -> Any:
    if last == "sat":
        return t.saturate(x)
    if last == "relu":
        zero = t.const(x, 0.0)
        return t.b.select(t.b.fcmp_unordered(">", x, zero), x, zero)
    return x


def _to_float(kind: str, integral: bool, last: str) -> Build:
    """`last`: "sat", "relu", "ftz" (f32), "ftz.sat"."""

    def build(t: Lanes, x: Any) -> Any:
        if integral:
            x = _integral(t, x)
        x = _last(t, x, last.removeprefix("ftz."))
        if kind == "f64":
            return x
        rounding = f.RZ if integral else t.word(y.P_FLAGS, t.integers(x).type)
        if kind != "f32":
            return t.resize(f.narrow(t, x, HALVES[kind], rounding), 16)
        made = f.f32_of_odd(t, x, rounding)
        return t.flush(made) if last.startswith("ftz") else made

    return build


# ---- packs


def _half_code(name: str, rounding: int, relu: bool, finite: bool) -> Build:
    """f32 as lanes of 32 bits with a code."""
    form = {**HALVES, "tf32": f.TF32}[name]

    def build(t: Lanes, x: Any) -> Any:
        if relu:
            x = _last(t, x, "relu")
        code = f.narrow(t, x, form.saturated() if finite else form, rounding)
        return t.shl(code, 13) if name == "tf32" else code

    return build


def _pair(code: Build, width: int) -> Build:
    """Codes of a and b: b's in the lower half."""

    def build(t: Lanes, a: Any, b: Any) -> Any:
        both = t.b.or_(t.shl(code(t, a), width), code(t, b))
        return both if width == 16 else t.resize(both, 16)

    return build


def _small_code(form: f.FloatFormat, relu: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        return f.narrow(t, _last(t, x, "relu") if relu else x, form, f.RN)

    return build


def _small_of_halves(source: f.FloatFormat, form: f.FloatFormat, width: int, relu: bool) -> Build:
    pair = _pair(_small_code(form, relu), width)

    def build(t: Lanes, both: Any) -> Any:
        return pair(t, *(f.widen(t, t.lshr(both, at), source) for at in (16, 0)))

    return build


def _halves_of_small(form: f.FloatFormat, width: int, relu: bool) -> Build:
    """Two small codes as f16: exact."""

    def build(t: Lanes, both: Any) -> Any:
        made = []
        for at in (width, 0):
            x = f.widen(t, t.and_(t.lshr(t.resize(both, 32), at), (1 << form.width) - 1), form)
            made.append(f.narrow(t, _last(t, x, "relu") if relu else x, f.F16))
        return t.b.or_(t.shl(made[0], 16), made[1])

    return build


def _scale_code(up: bool, finite: bool) -> Build:
    """f32 as a power of two (ue8m0): towards zero or up; beyond the largest, that or a NaN."""

    def build(t: Lanes, x: Any) -> Any:
        size = t.and_(t.integers(x), 0x7FFFFFFF)
        code = t.lshr(size, 23)
        if up:
            rest = t.and_(size, 0x7FFFFF)
            # 2^-127 is the least code, and half the least normal number.
            least = t.compare("<=", size, 0x400000)
            more = t.select(t.compare("!=", rest, 0), 1, t.const(code, 0))
            code = t.select(least, 0, t.b.add(code, more))
        code = t.select(t.compare(">", code, 254), 254 if finite else 255, code)
        return t.select(t.is_nan(x), 255, code)

    return build


def _scale_of_halves(up: bool, finite: bool) -> Build:
    pair = _pair(_scale_code(up, finite), 8)
    return lambda t, both: pair(t, *(f.widen(t, t.lshr(both, at), f.BF16) for at in (16, 0)))


def _halves_of_scale(t: Lanes, both: Any) -> Any:
    """Two ue8m0 as bf16."""
    bits = t.resize(both, 32)
    made = []
    for at in (8, 0):
        code = t.and_(t.lshr(bits, at), 255)
        half = t.select(t.compare("==", code, 0), 0x40, t.shl(code, 7))
        made.append(t.select(t.compare("==", code, 255), 0x7FFF, half))
    return t.b.or_(t.shl(made[0], 16), made[1])


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}
    for source in (32, 64):
        for result in (16, 32, 64):
            kinds = f"b{result} = b{source}"
            made[f"int{source}.{result}"] = operation(kinds, _into(_whole(False), result))
            made[f"int{source}.{result}.sat"] = operation(kinds, _into(_whole(True), result))
    for result in (16, 32, 64):
        build = _into(_whole(True, unsigned=True), result)
        made[f"uint64.{result}.sat"] = operation(f"b{result} = b64", build)
    for size in (2, 4, 8, 16):
        for sign in "us":
            build = _pack_whole(size, sign == "s")
            kinds = "b32 = b32 b32" + " b32" * (size < 16)
            made[f"pack.{sign}{size}"] = operation(kinds, build)
    _direct(made)
    _stages(made)
    _packs(made)
    return made


def _direct(made: dict[str, LaneOperation]) -> None:
    kind = real(32)
    made["f32.s32"] = operation("f32 = b32", lambda t, a: t.b.sitofp(a, kind))
    made["f32.u32"] = operation("f32 = b32", lambda t, a: t.b.uitofp(a, kind))
    double = real(64)
    made["f64.s64"] = operation("f64 = b64", lambda t, a: t.b.sitofp(a, double))
    made["f64.u64"] = operation("f64 = b64", lambda t, a: t.b.uitofp(a, double))
    for sign in "su":
        build = _of_64(f"{sign}itofp")
        made[f"f64.{sign}64.rounded"] = operation("f64 = b64", build)
    made["f32.bf16"] = operation("f32 = b16", lambda t, a: f.widen(t, a, f.BF16))
    made["f32.f16"] = operation("f32 = b16", lambda t, a: t.canonical(f.widen(t, a, f.F16)))


def _of_64(name: str) -> Build:
    """Integers of 64 bits as f64, rounded as P_FLAGS says."""
    return lambda t, a: t.rounded(name, f.machine_rounding(t, y.P_FLAGS), a)


def _stages(made: dict[str, LaneOperation]) -> None:
    """ "from" makes the row of f64, which is P_DST2 and P_B; "to" takes it."""

    def first(name: str, kind: str, build: Build) -> None:
        made[f"from.{name}"] = operation(f"f64 = {kind}", build, result=1)

    def second(name: str, kind: str, build: Build) -> None:
        made[f"to.{name}"] = operation(f"{kind} = f64", build, source=1)

    first("int", "b32", _from_whole)
    first("int64", "b64", _from_whole)
    first("s64", "b64", lambda t, a: f.whole_as_f64(t, a, True))
    first("u64", "b64", lambda t, a: f.whole_as_f64(t, a, False))
    first("f32", "f32", _from_f32(False))
    first("f32.ftz", "f32", _from_f32(True))
    first("f64", "f64", lambda t, a: a)
    for name, form in HALVES.items():
        first(name, "b16", _from_half(form))
    for width in (16, 32, 64):
        second(f"int{width}", f"b{width}", _into(_to_whole(False, False), width))
    second("s64", "b64", _to_whole(True, False))
    second("u64", "b64", _to_whole(False, True))
    for name, kind in _WIDTHS.items():
        lasts = ("", "sat", "relu", *(("ftz", "ftz.sat", "ftz.relu") if name == "f32" else ()))
        for last in lasts:
            for integral in (False, True):
                key = f"{name}{'.integral' if integral else ''}{'.' if last else ''}{last}"
                second(key, kind, _to_float(name, integral, last))


def _packs(made: dict[str, LaneOperation]) -> None:
    for relu in (False, True):
        tail = ".relu" if relu else ""
        for rounding in ("rn", "rz"):
            for finite in (False, True):
                key = f"{rounding}{tail}{'.satfinite' if finite else ''}"
                for name in HALVES:
                    code = _half_code(name, f.ROUNDINGS[rounding], relu, finite)
                    made[f"{name}.f32.{key}"] = operation("b16 = f32", _into(code, 16))
                    made[f"{name}x2.f32.{key}"] = operation("b32 = f32 f32", _pair(code, 16))
                code = _half_code("tf32", f.ROUNDINGS[rounding], relu, finite)
                made[f"tf32.f32.{key}"] = operation("b32 = f32", code)
        for name, form in BYTES.items():
            width = 4 if name == "e2m1" else 8
            code = _small_code(form, relu)
            made[f"{name}x2.f32{tail}"] = operation("b16 = f32 f32", _pair(code, width))
            build = _halves_of_small(form, width, relu)
            made[f"f16x2.{name}x2{tail}"] = operation("b32 = b16", build)
            for source in HALVES:
                build = _small_of_halves(HALVES[source], form, width, relu)
                made[f"{name}x2.{source}x2{tail}"] = operation("b16 = b32", build)
    for finite in (False, True):
        code = _half_code("tf32", f.RNA, False, finite)
        made[f"tf32.f32.rna{'.satfinite' if finite else ''}"] = operation("b32 = f32", code)
    for mode in ("rz", "rp"):
        for finite in (False, True):
            key = f"{mode}{'.satfinite' if finite else ''}"
            build = _pair(_scale_code(mode == "rp", finite), 8)
            made[f"ue8m0x2.f32.{key}"] = operation("b16 = f32 f32", build)
            build = _scale_of_halves(mode == "rp", finite)
            made[f"ue8m0x2.bf16x2.{key}"] = operation("b16 = b32", build)
    made["bf16x2.ue8m0x2"] = operation("b32 = b16", _halves_of_scale)


CONVERSIONS = _table()
NUMBERS = numbered(CONVERSIONS)
_convert = operations(CONVERSIONS)


@compiled
def run_convert(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits. P_TYPE: 1 where SECOND has the number of a second operation."""
    p = program_row(context, row)
    registers = place(context, warp, 0)
    constants = load_i64(context, y.C_CONSTANTS)
    number = load_i64(p, y.P_OP)
    for _ in range(1 + load_i64(p, y.P_TYPE)):
        _convert(number, p, registers, constants, mask)
        number = load_i64(p, SECOND)
    return y.NEXT
