"""Integer arithmetic, logic and shifts of 16, 32 and 64 bits.

Division by zero gives what the chip's own code gives: all ones, and the dividend as the remainder;
the ISA leaves it open. The least number divided by -1 is itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import place, program_row
from mlagen.emulator.ptx.values.lanes import LaneOperation, Lanes, numbered, operation, operations

Build = Callable[..., Any]
_SIGNS = ("u", "s")


def _plain(name: str) -> Build:
    """An instruction of LLVM's."""
    return lambda t, *x: getattr(t.b, name)(*x)


def _called(name: str) -> Build:
    return lambda t, *x: t.call(name, *x)


def _high(signed: bool) -> Build:
    """The upper half of a product."""

    def build(t: Lanes, a: Any, b: Any) -> Any:
        width = t.width(a)
        if width == 64:
            return _high64(t, a, b, signed)
        product = t.b.mul(t.resize(a, 2 * width, signed), t.resize(b, 2 * width, signed))
        return t.resize(t.lshr(product, width), width)

    return build


def _high64(t: Lanes, a: Any, b: Any, signed: bool) -> Any:
    """By halves: vectors of 128 bits would be taken apart lane by lane."""
    low, top = (lambda x: t.and_(x, 0xFFFFFFFF)), (lambda x: t.lshr(x, 32))
    first = t.b.mul(low(a), low(b))
    one, other = t.b.mul(top(a), low(b)), t.b.mul(low(a), top(b))
    middle = t.b.add(t.b.add(top(first), low(one)), low(other))
    high = t.b.add(t.b.mul(top(a), top(b)), t.b.add(top(one), top(other)))
    high = t.b.add(high, top(middle))
    if signed:
        high = t.b.sub(high, t.b.and_(t.ashr(a, 63), b))
        high = t.b.sub(high, t.b.and_(t.ashr(b, 63), a))
    return high


def _wide(signed: bool) -> Build:
    def build(t: Lanes, a: Any, b: Any) -> Any:
        width = t.width(a)
        return t.b.mul(t.resize(a, 2 * width, signed), t.resize(b, 2 * width, signed))

    return build


def _product24(t: Lanes, a: Any, b: Any, signed: bool) -> Any:
    """Products of the low 24 bits: 48 of 64 bits."""
    shift = t.ashr if signed else t.lshr
    a, b = (t.resize(shift(t.shl(x, 8), 8), 64, signed) for x in (a, b))
    return t.b.mul(a, b)


def _mul24(signed: bool, high: bool) -> Build:
    def build(t: Lanes, a: Any, b: Any) -> Any:
        product = _product24(t, a, b, signed)
        return t.resize(t.lshr(product, 16) if high else product, 32)

    return build


def _then_add(build: Build, adding: str = "") -> Build:
    """What mad does after mul: add, or call `adding`."""

    def both(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        product = build(t, a, b)
        return t.call(adding, product, c) if adding else t.b.add(product, c)

    return both


def _carry(subtract: bool, taking: bool, before: Build | None = None) -> Build:
    """add.cc, addc, sub.cc, subc, mad.cc, madc: the carry (or borrow) goes in and out."""

    def build(t: Lanes, *operands: Any) -> Any:
        carry = operands[-1] if taking else None
        x = operands[: len(operands) - taking]
        a, b = (before(t, *x[:2]), x[2]) if before else x
        total = t.b.sub(a, b) if subtract else t.b.add(a, b)
        out = t.compare("<", a, b) if subtract else t.compare("<", total, a)
        if carry is not None:
            one = t.b.zext(carry, a.type)
            last = t.b.sub(total, one) if subtract else t.b.add(total, one)
            over = t.compare("<", total, one) if subtract else t.compare("<", last, total)
            total, out = last, t.b.or_(out, over)
        return total, out

    return build


def _sad(signed: bool) -> Build:
    def build(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        less = t.compare("<", a, b, signed)
        return t.b.add(c, t.b.select(less, t.b.sub(b, a), t.b.sub(a, b)))

    return build


def _divide(signed: bool, remainder: bool) -> Build:
    def build(t: Lanes, a: Any, b: Any) -> Any:
        zero = t.compare("==", b, 0)
        safe = t.select(zero, 1, b)
        least = None
        if signed:
            least = t.compare("==", b, -1)
            safe = t.select(least, 1, safe)
        name = ("s" if signed else "u") + ("rem" if remainder else "div")
        made = getattr(t.b, name)(a, safe)
        if remainder:
            return t.b.select(zero, a, made)
        if signed:
            made = t.b.select(least, t.b.neg(a), made)
        return t.select(zero, -1, made)

    return build


def _extremum(sign: str, signed: bool, relu: bool = False) -> Build:
    def build(t: Lanes, a: Any, *others: Any) -> Any:
        for b in others:
            a = t.b.select(t.compare(sign, a, b, signed), a, b)
        return t.select(t.compare("<", a, 0, True), 0, a) if relu else a

    return build


def _halves(build: Build) -> Build:
    """Of 32 bits each half by itself."""
    return lambda t, *x: t.bits(build(t, *(t.bits(one, 16) for one in x)), 32)


def _as_u32(build: Build) -> Build:
    return lambda t, *x: t.resize(build(t, *x), 32)


def _bfind(signed: bool, shiftamt: bool) -> Build:
    """The place of the highest bit that is not the sign's; all ones for none."""

    def build(t: Lanes, a: Any) -> Any:
        width = t.width(a)
        if signed:
            a = t.b.xor(a, t.ashr(a, width - 1))
        zeros = t.resize(t.count_zeros("ctlz", a), 32)
        found = zeros if shiftamt else t.b.sub(t.const(zeros, width - 1), zeros)
        return t.select(t.compare("==", a, 0), -1, found)

    return build


def _fns(t: Lanes, mask: Any, base: Any, offset: Any) -> Any:
    """The n-th set bit from `base`, upwards or downwards; all ones for none."""
    found = t.const(mask, -1)
    down = t.compare("<", offset, 0, True)
    none = t.compare("==", offset, 0)
    left = t.select(none, 1, t.b.select(down, t.b.neg(offset), offset))
    for step in range(32):
        up = t.add(base, step)
        at = t.b.select(down, t.sub(base, step), up)
        inside = t.compare("<", at, 32)
        bit = t.b.and_(t.b.lshr(mask, t.and_(at, 31)), t.const(mask, 1))
        here = t.b.and_(inside, t.compare("==", bit, 1))
        if step:
            here = t.b.and_(here, t.b.not_(none))
        left = t.b.select(here, t.sub(left, 1), left)
        hit = t.b.and_(here, t.compare("==", left, 0))
        found = t.b.select(hit, at, found)
    return found


def _clamped(t: Lanes, x: Any, most: int) -> Any:
    return t.select(t.compare("<", x, most), x, most)


def _shift(name: str) -> Build:
    """shl, lshr, ashr by an amount of 32 bits; beyond the width all bits go."""

    def build(t: Lanes, a: Any, amount: Any) -> Any:
        width = t.width(a)
        most = width - 1
        inside = t.compare("<", amount, width)
        by = t.resize(_clamped(t, amount, most), width)
        made = getattr(t.b, name)(a, by)
        return made if name == "ashr" else t.select(inside, made, 0)

    return build


def _funnel(left: bool, wrap: bool) -> Build:
    def build(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        amount = t.and_(c, 31) if wrap else _clamped(t, c, 32)
        amount = t.resize(amount, 64)
        both = t.b.or_(t.shl(t.resize(b, 64), 32), t.resize(a, 64))
        moved = t.lshr(t.b.shl(both, amount), 32) if left else t.b.lshr(both, amount)
        return t.resize(moved, 32)

    return build


def _bfe(signed: bool) -> Build:
    """A field of bits: from `b`, `c` bits; beyond the register its sign (or 0)."""

    def build(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        width = t.width(a)
        at, size = t.and_(b, 255), t.and_(c, 255)
        last = _clamped(t, t.sub(t.b.add(at, size), 1), width - 1)
        inside = t.compare("<", at, width)
        by = t.resize(_clamped(t, at, width - 1), width)
        field = t.select(inside, t.b.lshr(a, by), 0)
        full = t.compare(">=", size, width)
        ones = t.sub(t.b.shl(t.const(a, 1), t.resize(_clamped(t, size, width - 1), width)), 1)
        ones = t.select(full, -1, ones)
        field = t.b.and_(field, ones)
        if signed:
            sign = t.and_(t.b.lshr(a, t.resize(last, width)), 1)
            # Bits of the field that lie above the register, and all above the field.
            room = t.b.sub(t.const(at, width), _clamped(t, at, width))
            taken = t.b.select(t.compare("<", size, room), size, room)
            whole = t.compare(">=", taken, width)
            above = t.b.shl(t.const(a, -1), t.resize(_clamped(t, taken, width - 1), width))
            above = t.select(whole, 0, above)
            field = t.b.or_(field, t.b.and_(above, t.b.neg(sign)))
        return t.select(t.compare("==", size, 0), 0, field)

    return build


def _bfi(t: Lanes, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The low `d` bits of a into b from bit `c`."""
    width = t.width(a)
    at, size = t.and_(c, 255), t.and_(d, 255)
    ones = t.sub(t.b.shl(t.const(a, 1), t.resize(_clamped(t, size, width - 1), width)), 1)
    ones = t.select(t.compare(">=", size, width), -1, ones)
    by = t.resize(_clamped(t, at, width - 1), width)
    mask = t.select(t.compare("<", at, width), t.b.shl(ones, by), 0)
    moved = t.b.shl(a, by)
    return t.b.or_(t.b.and_(moved, mask), t.b.and_(b, t.b.not_(mask)))


def _bmsk(wrap: bool) -> Build:
    """`b` ones from bit `a`."""

    def build(t: Lanes, a: Any, b: Any) -> Any:
        if wrap:
            a, b = t.and_(a, 31), t.and_(b, 31)
        a, b = (t.resize(_clamped(t, x, 32), 64) for x in (a, b))
        ones = t.sub(t.b.shl(t.const(a, 1), b), 1)
        return t.resize(t.b.shl(ones, a), 32)

    return build


def _szext(wrap: bool, signed: bool) -> Build:
    """The low `b` bits, extended."""

    def build(t: Lanes, a: Any, b: Any) -> Any:
        amount = t.and_(b, 31) if wrap else _clamped(t, b, 32)
        by = t.resize(t.b.sub(t.const(amount, 32), amount), 64)
        left = t.shl(t.b.shl(t.resize(a, 64), by), 32)
        right = t.add(by, 32)
        moved = t.b.ashr(left, right) if signed else t.b.lshr(left, right)
        whole = t.resize(moved, 32)
        return t.select(t.compare("==", amount, 0), 0, whole)

    return build


def _dot(count: int, types: str, high: bool = False) -> Build:
    """dp4a (bytes of both) and dp2a (halves of a, two bytes of b), plus c."""

    def build(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        size = 32 // count
        first = 16 if high else 0
        for i in range(count):
            x = t.lshr(t.shl(a, 32 - size * (i + 1)), 32 - size)
            x = t.ashr(t.shl(x, 32 - size), 32 - size) if types[0] == "s" else x
            other = t.and_(t.lshr(b, first + 8 * i), 255)
            other = t.ashr(t.shl(other, 24), 24) if types[1] == "s" else other
            c = t.b.add(c, t.b.mul(x, other))
        return c

    return build


def _lop3(t: Lanes, a: Any, b: Any, c: Any) -> Any:
    """Any function of three bits: P_IMM has its value for each of the eight."""
    found = t.const(a, 0)
    table = t.scalar(y.P_IMM)
    for number in range(8):
        shifted = t.b.lshr(table, table.type(number))
        chosen = t.b.neg(t.b.and_(shifted, table.type(1)))
        term = t.splat(chosen, a.type)
        for value, bit in ((a, 4), (b, 2), (c, 1)):
            term = t.b.and_(term, value if number & bit else t.b.not_(value))
        found = t.b.or_(found, term)
    return found


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}

    def put(name: str, kinds: str, build: Build) -> None:
        made[name] = operation(kinds, build)

    for w in (16, 32, 64):
        k = f"b{w}"
        for name in ("add", "sub", "and_", "or_", "xor"):
            put(f"{name.strip('_')}{w}", f"{k} = {k} {k}", _plain(name))
        put(f"mul.lo{w}", f"{k} = {k} {k}", _plain("mul"))
        put(f"mad.lo{w}", f"{k} = {k} {k} {k}", _then_add(_plain("mul")))
        put(f"not{w}", f"{k} = {k}", _plain("not_"))
        put(f"neg{w}", f"{k} = {k}", _plain("neg"))
        put(f"cnot{w}", f"{k} = {k}", lambda t, a: t.b.zext(t.compare("==", a, 0), a.type))
        put(f"abs{w}", f"{k} = {k}", _extremum_abs)
        put(f"shl{w}", f"{k} = {k} b32", _shift("shl"))
        put(f"shr.u{w}", f"{k} = {k} b32", _shift("lshr"))
        put(f"shr.s{w}", f"{k} = {k} b32", _shift("ashr"))
        for s in _SIGNS:
            signed = s == "s"
            put(f"mul.hi.{s}{w}", f"{k} = {k} {k}", _high(signed))
            put(f"mad.hi.{s}{w}", f"{k} = {k} {k} {k}", _then_add(_high(signed)))
            put(f"div.{s}{w}", f"{k} = {k} {k}", _divide(signed, False))
            put(f"rem.{s}{w}", f"{k} = {k} {k}", _divide(signed, True))
            put(f"min.{s}{w}", f"{k} = {k} {k}", _extremum("<", signed))
            put(f"max.{s}{w}", f"{k} = {k} {k}", _extremum(">", signed))
            put(f"sad.{s}{w}", f"{k} = {k} {k} {k}", _sad(signed))
            if w < 64:
                d = f"b{2 * w}"
                put(f"mul.wide.{s}{w}", f"{d} = {k} {k}", _wide(signed))
                put(f"mad.wide.{s}{w}", f"{d} = {k} {k} {d}", _then_add(_wide(signed)))
    _of_32_and_64(put)
    _of_32(put)
    return made


def _extremum_abs(t: Lanes, a: Any) -> Any:
    return t.b.select(t.compare("<", a, 0, True), t.b.neg(a), a)


def _of_32_and_64(put: Callable[[str, str, Build], None]) -> None:
    for w in (32, 64):
        k = f"b{w}"
        put(f"add.cc{w}", f"{k} pred = {k} {k}", _carry(False, False))
        put(f"addc{w}", f"{k} pred = {k} {k} pred", _carry(False, True))
        put(f"sub.cc{w}", f"{k} pred = {k} {k}", _carry(True, False))
        put(f"subc{w}", f"{k} pred = {k} {k} pred", _carry(True, True))
        low = _plain("mul")
        for name, build in (("lo", low), ("hi.u", _high(False)), ("hi.s", _high(True))):
            put(f"mad.{name}.cc{w}", f"{k} pred = {k} {k} {k}", _carry(False, False, build))
            put(f"madc.{name}{w}", f"{k} pred = {k} {k} {k} pred", _carry(False, True, build))
        put(f"popc{w}", f"b32 = {k}", _as_u32(_called("ctpop")))
        put(f"clz{w}", f"b32 = {k}", _as_u32(lambda t, a: t.count_zeros("ctlz", a)))
        put(f"brev{w}", f"{k} = {k}", _called("bitreverse"))
        put(f"bfi{w}", f"{k} = {k} {k} b32 b32", _bfi)
        for s in _SIGNS:
            put(f"bfind.{s}{w}", f"b32 = {k}", _bfind(s == "s", False))
            put(f"bfind.shiftamt.{s}{w}", f"b32 = {k}", _bfind(s == "s", True))
            put(f"bfe.{s}{w}", f"{k} = {k} b32 b32", _bfe(s == "s"))


def _of_32(put: Callable[[str, str, Build], None]) -> None:
    two, three = "b32 = b32 b32", "b32 = b32 b32 b32"
    put("add.sat", two, _called("sadd.sat"))
    put("sub.sat", two, _called("ssub.sat"))
    put("mad.hi.sat", three, _then_add(_high(True), "sadd.sat"))
    put("mad24.hi.sat", three, _then_add(_mul24(True, True), "sadd.sat"))
    put("add16x2", two, _halves(_plain("add")))
    put("sub16x2", two, _halves(_plain("sub")))
    for s in _SIGNS:
        signed = s == "s"
        for name, sign in (("min", "<"), ("max", ">")):
            put(f"{name}.{s}16x2", two, _halves(_extremum(sign, signed)))
            put(f"{name}3.{s}32", three, _extremum(sign, signed))
            put(f"{name}3.{s}16x2", three, _halves(_extremum(sign, signed)))
            if signed:
                put(f"{name}.relu.s32", two, _extremum(sign, True, relu=True))
                put(f"{name}.relu.s16x2", two, _halves(_extremum(sign, True, relu=True)))
        for part in ("lo", "hi"):
            build = _mul24(signed, part == "hi")
            put(f"mul24.{part}.{s}", two, build)
            put(f"mad24.{part}.{s}", three, _then_add(build))
        for mode in ("clamp", "wrap"):
            put(f"szext.{mode}.{s}", two, _szext(mode == "wrap", signed))
    for types in ("uu", "us", "su", "ss"):
        put(f"dp4a.{types}", three, _dot(4, types))
        put(f"dp2a.lo.{types}", three, _dot(2, types))
        put(f"dp2a.hi.{types}", three, _dot(2, types, high=True))
    for mode in ("clamp", "wrap"):
        put(f"bmsk.{mode}", two, _bmsk(mode == "wrap"))
        put(f"shf.l.{mode}", three, _funnel(True, mode == "wrap"))
        put(f"shf.r.{mode}", three, _funnel(False, mode == "wrap"))
    put("lop3", three, _lop3)
    put("fns", three, _fns)


INTEGERS = _table()
NUMBERS = numbered(INTEGERS)
_integer = operations(INTEGERS)


@compiled
def run_integer(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits."""
    p = program_row(context, row)
    registers = place(context, warp, 0)
    _integer(load_i64(p, y.P_OP), p, registers, load_i64(context, y.C_CONSTANTS), mask)
    return y.NEXT
