"""Operations on rows of 32 lanes as LLVM vectors.

A `LaneOperation` names the kinds of its sources and results and builds code for a few lanes at a
time. `operations` makes of a table of them one word of the engine's language: it reads the
places of the operands from a program row, runs the operation of that number, and keeps the lanes
outside a mask.

Kinds: "b16", "b32", "b64" are vectors of integers (16 bits lie in a row of 32, upper bits zero),
"f32" and "f64" the same rows as floats, "pred" is a vector of single bits.

Some lanes of all sources are read before the same lanes of a result are written, so that a result
may be one of the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mlagen.emulator.ptx import layout as y

WIDTH = 16  # lanes at a time: an AVX-512 register of 32 bits

_I64 = ir.IntType(64)
_PART = ir.IntType(WIDTH)
_STORED = {"b16": 32, "b32": 32, "f32": 32, "b64": 64, "f64": 64}
_SOURCES = (y.P_A, y.P_B, y.P_C, y.P_D)
_RESULTS = (y.P_DST, y.P_DST2, y.P_AUX, y.P_AUX + 1)
_FLOATS = {32: ir.FloatType(), 64: ir.DoubleType()}


def vector(bits: int, count: int = WIDTH) -> Any:
    """LLVM's vector of integers."""
    return ir.VectorType(ir.IntType(bits), count)


def real(bits: int, count: int = WIDTH) -> Any:
    """LLVM's vector of floats."""
    return ir.VectorType(_FLOATS[bits], count)


@dataclass(frozen=True)
class LaneOperation:
    """`build(lanes, *sources)` gives the result, or a tuple of them. The sources are P_A, … and the
    results P_DST, P_DST2, P_AUX, …, both from the one that `source` and `result` say."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    build: Callable[..., Any]
    source: int = 0
    result: int = 0


def operation(
    kinds: str, build: Callable[..., Any], *, source: int = 0, result: int = 0
) -> LaneOperation:
    """An operation from its kinds: "b32 = b32 b32"."""
    results, _, sources = kinds.partition("=")
    return LaneOperation(tuple(results.split()), tuple(sources.split()), build, source, result)


class Lanes:
    """Builds code on vectors. `p` is the program row, whose words a body may ask for."""

    def __init__(self, builder: Any, p: Any = None) -> None:
        self.b = builder
        self.p = p

    # ---- numbers

    def const(self, like: Any, value: float) -> Any:
        """A constant of the type of `like` (a value or a type)."""
        kind = like if isinstance(like, ir.Type) else like.type
        if isinstance(kind.element, ir.IntType):
            value = int(value) & ((1 << kind.element.width) - 1)
        return ir.Constant(kind, [value] * kind.count)

    def scalar(self, slot: int) -> Any:
        """A word of the program row."""
        where = self.b.add(self.p, ir.Constant(_I64, 8 * slot))
        return self.b.load(self.b.inttoptr(where, _I64.as_pointer()), align=8)

    def splat(self, scalar: Any, kind: Any) -> Any:
        """A whole number of 64 bits in each lane, cut to the lane's width."""
        if kind.element.width < 64:
            scalar = self.b.trunc(scalar, kind.element)
        undef = ir.Constant(kind, ir.Undefined)
        first = self.b.insert_element(undef, scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(vector(32, kind.count), [0] * kind.count)
        return self.b.shuffle_vector(first, undef, zeros)

    def word(self, slot: int, kind: Any) -> Any:
        """A word of the program row in each lane."""
        return self.splat(self.scalar(slot), kind)

    # ---- kinds

    def bits(self, value: Any, width: int) -> Any:
        """The same bits as lanes of another width."""
        whole = value.type.count * self.width(value)
        return self.b.bitcast(value, vector(width, whole // width))

    def floats(self, value: Any) -> Any:
        """Lanes of 32 or 64 bits as floats."""
        width = self.width(value)
        return self.b.bitcast(value, real(width, value.type.count))

    def integers(self, value: Any) -> Any:
        """Floats as lanes of integers."""
        return self.b.bitcast(value, vector(self.width(value), value.type.count))

    def width(self, value: Any) -> int:
        """Bits of a lane."""
        element = value.type.element
        if isinstance(element, ir.IntType):
            return int(element.width)
        return 64 if isinstance(element, ir.DoubleType) else 32

    def resize(self, value: Any, width: int, signed: bool = False) -> Any:
        """Integers of another width: cut, or extended."""
        kind = vector(width, value.type.count)
        have = self.width(value)
        if have > width:
            return self.b.trunc(value, kind)
        if have == width:
            return value
        return self.b.sext(value, kind) if signed else self.b.zext(value, kind)

    def wide(self, value: Any) -> Any:
        """f32 as f64."""
        return self.b.fpext(value, real(64, value.type.count))

    # ---- operators: `other` may be a number

    def _other(self, value: Any, other: Any) -> Any:
        return self.const(value, other) if isinstance(other, (int, float)) else other

    def and_(self, x: Any, other: Any) -> Any:
        return self.b.and_(x, self._other(x, other))

    def or_(self, x: Any, other: Any) -> Any:
        return self.b.or_(x, self._other(x, other))

    def xor(self, x: Any, other: Any) -> Any:
        return self.b.xor(x, self._other(x, other))

    def add(self, x: Any, other: Any) -> Any:
        return self.b.add(x, self._other(x, other))

    def sub(self, x: Any, other: Any) -> Any:
        return self.b.sub(x, self._other(x, other))

    def shl(self, x: Any, other: Any) -> Any:
        return self.b.shl(x, self._other(x, other))

    def lshr(self, x: Any, other: Any) -> Any:
        return self.b.lshr(x, self._other(x, other))

    def ashr(self, x: Any, other: Any) -> Any:
        return self.b.ashr(x, self._other(x, other))

    def compare(self, sign: str, x: Any, other: Any, signed: bool = False) -> Any:
        compare = self.b.icmp_signed if signed else self.b.icmp_unsigned
        return compare(sign, x, self._other(x, other))

    def select(self, test: Any, yes: Any, no: Any) -> Any:
        """`yes` or `no` may be a number."""
        kind = no if isinstance(yes, (int, float)) else yes
        return self.b.select(test, self._other(kind, yes), self._other(kind, no))

    def call(self, name: str, *operands: Any) -> Any:
        """LLVM's intrinsic of that name for the type of the first operand."""
        kind = operands[0].type
        signature = ir.FunctionType(kind, [operand.type for operand in operands])
        width = self.width(operands[0])
        letter = "i" if isinstance(kind.element, ir.IntType) else "f"
        full = f"llvm.{name}.v{kind.count}{letter}{width}"
        function = cgutils.get_or_insert_function(self.b.module, signature, full)
        return self.b.call(function, operands)

    def rounded(self, name: str, mode: Any, *operands: Any) -> Any:
        """fadd, fsub, fmul, fdiv, fma, sqrt, sitofp or uitofp, rounded as the machine is told:
        `mode` is a number of LLVM's (0 to zero, 1 nearest, 2 up, 3 down)."""
        b, kind = self.b, operands[0].type
        letters = f"v{kind.count}f64"
        result = real(64, kind.count)
        if isinstance(kind.element, ir.IntType):
            letters = f"{letters}.v{kind.count}i64"
        strings = [ir.MetaDataString(b.module, s) for s in ("round.dynamic", "fpexcept.ignore")]
        types_ = [*(operand.type for operand in operands), *[ir.MetaDataType()] * 2]
        full = f"llvm.experimental.constrained.{name}.{letters}"
        signature = ir.FunctionType(result, types_)
        function = cgutils.get_or_insert_function(b.module, signature, full)
        setter = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(ir.VoidType(), [ir.IntType(32)]), "llvm.set.rounding"
        )
        b.call(setter, [mode])
        found = b.call(function, [*operands, *strings])
        b.call(setter, [ir.Constant(ir.IntType(32), 1)])
        return found

    def count_zeros(self, name: str, x: Any) -> Any:
        """ctlz or cttz; the width for 0."""
        flag = ir.IntType(1)
        full = f"llvm.{name}.v{x.type.count}i{self.width(x)}"
        signature = ir.FunctionType(x.type, [x.type, flag])
        function = cgutils.get_or_insert_function(self.b.module, signature, full)
        return self.b.call(function, [x, ir.Constant(flag, 0)])

    # ---- floats

    def is_nan(self, x: Any) -> Any:
        return self.b.fcmp_unordered("uno", x, x)

    def flush(self, x: Any) -> Any:
        """Floats of 32 bits, denormals as zeros of their sign."""
        bits = self.integers(x)
        small = self.compare("==", self.and_(bits, 0x7F800000), 0)
        return self.floats(self.select(small, self.and_(bits, 0x80000000), bits))

    def canonical(self, x: Any) -> Any:
        """Floats of 32 bits, every NaN the canonical one."""
        return self.floats(self.select(self.is_nan(x), 0x7FFFFFFF, self.integers(x)))

    def saturate(self, x: Any) -> Any:
        """Floats clamped to 0 … 1; a NaN, and -0, is +0."""
        zero, one = self.const(x, 0.0), self.const(x, 1.0)
        low = self.select(self.b.fcmp_ordered(">", x, zero), x, zero)
        return self.select(self.b.fcmp_ordered("<", low, one), low, one)


# ---- rows


def _address(t: Lanes, slot: int, registers: Any, constants: Any) -> Any:
    """Address of an operand's row: `state.place` without a branch."""
    where = t.scalar(slot)
    negative = t.b.icmp_signed("<", where, ir.Constant(_I64, 0))
    base = t.b.select(negative, constants, registers)
    offset = t.b.select(negative, t.b.not_(where), where)
    return t.b.add(base, offset)


def _row(t: Lanes, address: Any, chunk: Any, width: int) -> Any:
    kind = vector(width)
    offset = t.b.mul(chunk, ir.Constant(_I64, WIDTH * width // 8))
    return t.b.inttoptr(t.b.add(address, offset), kind.as_pointer())


def _part(t: Lanes, mask: Any, chunk: Any) -> Any:
    """The bits of a mask of lanes that belong to a chunk."""
    shift = t.b.mul(chunk, ir.Constant(_I64, WIDTH))
    return t.b.bitcast(t.b.trunc(t.b.lshr(mask, shift), _PART), vector(1))


def read_row(t: Lanes, kind: str, address: Any, chunk: Any) -> Any:
    """Some lanes of a row."""
    stored = t.b.load(_row(t, address, chunk, _STORED[kind]), align=4)
    if kind == "b16":
        return t.b.trunc(stored, vector(16))
    return t.floats(stored) if kind in ("f32", "f64") else stored


def _write(t: Lanes, kind: str, address: Any, chunk: Any, mask: Any, value: Any) -> None:
    if kind == "b16":
        value = t.b.zext(value, vector(32))
    elif kind in ("f32", "f64"):
        value = t.integers(value)
    pointer = _row(t, address, chunk, _STORED[kind])
    old = t.b.load(pointer, align=4)
    t.b.store(t.b.select(_part(t, mask, chunk), value, old), pointer, align=4)


def gather(t: Lanes, place: Any, chunk: Any, value: Any) -> None:
    """Put a chunk's single bits into a mask of all lanes."""
    part = t.b.zext(t.b.bitcast(value, _PART), _I64)
    part = t.b.shl(part, t.b.mul(chunk, ir.Constant(_I64, WIDTH)))
    t.b.store(t.b.or_(t.b.load(place), part), place)


def masks(t: Lanes, count: int) -> list[Any]:
    """Places of masks that begin as 0."""
    places = [cgutils.alloca_once(t.b, _I64) for _ in range(count)]
    for place in places:
        t.b.store(ir.Constant(_I64, 0), place)
    return places


def each_chunk(builder: Any) -> Any:
    """A loop over all lanes."""
    return cgutils.for_range(builder, ir.Constant(_I64, y.LANES // WIDTH))


def _emit(builder: Any, one: LaneOperation, args: Sequence[Any]) -> None:
    p, registers, constants, mask = args
    t = Lanes(builder, p)
    asked = _SOURCES[one.source :][: len(one.sources)]
    sources = [_address(t, slot, registers, constants) for slot in asked]
    given = _RESULTS[one.result :][: len(one.results)]
    results = [_address(t, slot, registers, constants) for slot in given]
    found = masks(t, one.results.count("pred"))
    words = {
        i: builder.load(builder.inttoptr(sources[i], _I64.as_pointer()))
        for i, kind in enumerate(one.sources)
        if kind == "pred"
    }
    with each_chunk(builder) as loop:
        values = [
            _part(t, words[i], loop.index)
            if kind == "pred"
            else read_row(t, kind, sources[i], loop.index)
            for i, kind in enumerate(one.sources)
        ]
        made = one.build(t, *values)
        made = made if isinstance(made, tuple) else (made,)
        places = iter(found)
        for kind, address, value in zip(one.results, results, made, strict=True):
            if kind == "pred":
                gather(t, next(places), loop.index, value)
            else:
                _write(t, kind, address, loop.index, mask, value)
    predicates = [where for kind, where in zip(one.results, results, strict=True) if kind == "pred"]
    for address, place in zip(predicates, found, strict=True):
        pointer = builder.inttoptr(address, _I64.as_pointer())
        old = builder.and_(builder.load(pointer), builder.not_(mask))
        builder.store(builder.or_(old, builder.and_(builder.load(place), mask)), pointer)


def switch(builder: Any, number: Any, cases: Sequence[Callable[[], None]]) -> None:
    """Code of the case of that number; nothing for another."""
    done = builder.append_basic_block("rows.done")
    choice = builder.switch(number, done)
    for i, case in enumerate(cases):
        block = builder.append_basic_block("rows")
        choice.add_case(ir.Constant(_I64, i), block)
        builder.position_at_end(block)
        case()
        builder.branch(done)
    builder.position_at_end(done)


def operations(table: Mapping[str, LaneOperation]) -> Any:
    """f(number, p, registers, constants, mask): the operation of that number in the table."""

    def typing(
        context: Any, number: Any, p: Any, registers: Any, constants: Any, mask: Any
    ) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def case(one: LaneOperation) -> Callable[[], None]:
                return lambda: _emit(builder, one, args[1:])

            switch(builder, args[0], [case(one) for one in table.values()])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return intrinsic(typing)


def numbered(table: Mapping[str, Any]) -> dict[str, int]:
    """The number of each operation of a table."""
    return {name: number for number, name in enumerate(table)}


Relation = Callable[..., tuple[Any, ...]]  # less, equal and, of floats, unordered


def relations(table: Mapping[str, tuple[str, Relation]]) -> Any:
    """f(number, a, b, code): the lanes in which a relation holds between rows at two addresses.

    The bits of `code`: less, equal, greater, unordered. The table: kind of the operands, relation.
    """

    def typing(context: Any, number: Any, a: Any, b: Any, code: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            t = Lanes(builder)
            found = masks(t, 3)

            def case(kind: str, build: Relation) -> Callable[[], None]:
                def emit() -> None:
                    with each_chunk(builder) as loop:
                        rows = [read_row(t, kind, address, loop.index) for address in args[1:3]]
                        for place, value in zip(found, build(t, *rows), strict=False):
                            gather(t, place, loop.index, value)

                return emit

            switch(builder, args[0], [case(*one) for one in table.values()])
            return _holds(builder, [builder.load(place) for place in found], args[3])

        return types.int64(*[types.int64] * 4), generate

    return intrinsic(typing)


def _holds(builder: Any, found: Sequence[Any], code: Any) -> Any:
    less, equal, unordered = found
    known = builder.or_(builder.or_(less, equal), unordered)
    greater = builder.xor(known, ir.Constant(_I64, y.ALL))
    total = ir.Constant(_I64, 0)
    for bit, lanes in enumerate((less, equal, greater, unordered)):
        asked = builder.and_(builder.lshr(code, ir.Constant(_I64, bit)), ir.Constant(_I64, 1))
        total = builder.or_(total, builder.and_(lanes, builder.neg(asked)))
    return total
