"""The integer and predicate instructions, on values of `mlagen.audit.ptx.values`.

32-bit results wrap; a linear form is taken not to. Source: PTX ISA 9.0, 9.7.1, 9.7.7, 9.7.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlagen.audit.ptx.values import (
    GENERIC_SHARED,
    UNKNOWN,
    Linear,
    Value,
    add,
    compare,
    is_number,
    key_of,
    logic,
    plain,
    scale,
    term,
)
from mlagen.ptx.types import TYPE, bits_of

_COMPARE = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge",
}  # fmt: skip


def wrap(value: Value, letter: str, width: int) -> Value:
    """A number in the range of its type; unsigned for untyped bits."""
    if not is_number(value):
        return value
    if width >= 64:
        # 64-bit addresses stay well inside; only signs of bit patterns are folded.
        if isinstance(value, int):
            value &= (1 << width) - 1
            return value - (1 << width) if letter == "s" and value >> (width - 1) else value
        return value
    mask = (1 << width) - 1
    value = value & mask  # type: ignore[operator]
    if letter == "s":
        half = 1 << (width - 1)
        value = (value ^ half) - half
    return value


def _numbers(function: Callable[..., Any]) -> Callable[[Sequence[Value], str, int], Value]:
    """An operation that is only known for numbers; otherwise a term of its own."""
    name = function.__name__

    def run(args: Sequence[Value], letter: str, width: int) -> Value:
        if all(is_number(arg) for arg in args):
            typed = [wrap(arg, letter, width) for arg in args]
            return wrap(function(*typed), letter, width)
        return opaque((name, letter, width), args)

    return run


def opaque(name: tuple[Any, ...], args: Sequence[Value]) -> Value:
    """A term for a computation whose value is not known but always the same."""
    if all(is_number(arg) or isinstance(arg, Linear) for arg in args):
        return term(*name, *(key_of(arg) for arg in args))
    return UNKNOWN


def _int(value: Value) -> int | None:
    return int(value) if isinstance(value, (int, np.integer)) else None


def _add(args: Sequence[Value], letter: str, width: int) -> Value:
    return wrap(add(args[0], args[1]), letter, width)


def _sub(args: Sequence[Value], letter: str, width: int) -> Value:
    return wrap(add(args[0], args[1], -1), letter, width)


def _multiply(args: Sequence[Value], letter: str, width: int) -> Value:
    a, b = args[:2]
    for known, other in ((a, b), (b, a)):
        factor = _int(known)
        if factor is not None:
            if letter == "s" or width == 64:
                factor = int(wrap(factor, "s", width))  # type: ignore[arg-type]
            return scale(other, factor)
    if is_number(a) and is_number(b):
        return a * b  # type: ignore[operator]
    return opaque(("mul", letter, width), args)


def _shift_left(args: Sequence[Value], letter: str, width: int) -> Value:
    amount = _int(args[1])
    if amount is not None:
        return wrap(scale(args[0], 1 << min(amount, 64)), letter, width)
    if is_number(args[0]) and is_number(args[1]):
        return wrap(args[0] << args[1], letter, width)  # type: ignore[operator]
    return opaque(("shl", letter, width), args)


@_numbers
def _shr(a: Any, b: Any) -> Any:
    return a >> np.minimum(b, 63) if isinstance(b, np.ndarray) else a >> min(int(b), 63)


def _bits(op: str) -> Callable[[Sequence[Value], str, int], Value]:
    def run(args: Sequence[Value], letter: str, width: int) -> Value:
        if letter == "pred":
            return logic(op, *args)
        a, b = args
        if is_number(a) and is_number(b):
            return wrap({"and": a & b, "or": a | b, "xor": a ^ b}[op], letter, width)  # type: ignore[operator]
        for known, other in ((a, b), (b, a)):
            if _int(known) == 0:
                return 0 if op == "and" else other
        return opaque((op, letter, width), args)

    return run


def _not(args: Sequence[Value], letter: str, width: int) -> Value:
    if letter == "pred":
        return logic("not", args[0])
    if is_number(args[0]):
        return wrap(~args[0], letter, width)  # type: ignore[operator]
    return opaque(("not", width), args)


def _negate(args: Sequence[Value], letter: str, width: int) -> Value:
    return wrap(scale(args[0], -1), letter, width)


@_numbers
def _div(a: Any, b: Any) -> Any:
    if _lanes(a, b):
        none = np.equal(b, 0)
        quotient = abs(a) // np.where(none, 1, abs(b))
        return np.where(none, -1, np.where((a < 0) != (b < 0), -quotient, quotient))
    if not b:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


@_numbers
def _rem(a: Any, b: Any) -> Any:
    if _lanes(a, b):
        none = np.equal(b, 0)
        rest = abs(a) % np.where(none, 1, abs(b))
        return np.where(none, -1, np.where(a < 0, -rest, rest))
    if not b:
        return -1
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _lanes(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


@_numbers
def _min(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if _lanes(a, b) else min(a, b)


@_numbers
def _max(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if _lanes(a, b) else max(a, b)


@_numbers
def _abs(a: Any) -> Any:
    return abs(a)


def _each(function: Callable[[int], int]) -> Callable[[Sequence[Value], str, int], Value]:
    def run(args: Sequence[Value], letter: str, width: int) -> Value:
        (a,) = args
        if isinstance(a, np.ndarray):
            return np.array([function(int(x) & ((1 << width) - 1)) for x in a], np.int64)
        number = _int(a)
        if number is None:
            return opaque((repr(function), width), args)
        return function(number & ((1 << width) - 1))

    return run


def _bit_count(value: Value) -> int | None:
    """Positions and lengths of bit fields: 8 bits count (PTX ISA 9.0, bfe and bfi)."""
    number = _int(value)
    return None if number is None else number & 0xFF


def _bit_field(args: Sequence[Value], letter: str, width: int) -> Value:
    a, start, length = args
    at, count = _bit_count(start), _bit_count(length)
    if at is None or count is None or not is_number(a):
        return opaque(("bfe", letter, width), args)
    found = (a >> at) & ((1 << count) - 1)  # type: ignore[operator]
    return wrap(found, letter, count) if letter == "s" and count else found


def _bit_insert(args: Sequence[Value], letter: str, width: int) -> Value:
    a, b, start, length = args
    at, count = _bit_count(start), _bit_count(length)
    if at is None or count is None or not (is_number(a) and is_number(b)):
        return opaque(("bfi", letter, width), args)
    mask = ((1 << count) - 1) << at
    return (b & ~mask) | ((a << at) & mask)  # type: ignore[operator]


def _lop3(args: Sequence[Value], letter: str, width: int) -> Value:
    a, b, c, table = args
    lut = _int(table)
    if lut is None or not all(is_number(x) for x in (a, b, c)):
        return opaque(("lop3", width), args)
    full = (1 << width) - 1
    found: Any = 0
    for row in range(8):
        if lut >> row & 1:
            found = found | (
                (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)  # type: ignore[operator]
            )
    return found & full


def _select(args: Sequence[Value], letter: str, width: int) -> Value:
    a, b, p = args
    if isinstance(p, int):
        return a if p else b
    if isinstance(p, np.ndarray) and is_number(a) and is_number(b):
        return plain(np.where(p != 0, a, b))  # type: ignore[arg-type]
    return UNKNOWN


@_numbers
def _prmt(a: Any, b: Any, selector: Any) -> Any:
    if _lanes(selector):
        return -1
    both = (a & 0xFFFFFFFF) | ((b & 0xFFFFFFFF) << 32)
    found: Any = 0
    for byte in range(4):
        found = found | (((both >> (8 * ((int(selector) >> (4 * byte)) & 7))) & 0xFF) << (8 * byte))
    return found


def _copy(args: Sequence[Value], letter: str, width: int) -> Value:
    return wrap(args[0], letter, width)


OPERATIONS: dict[str, Callable[[Sequence[Value], str, int], Value]] = {
    "add": _add, "sub": _sub, "neg": _negate, "shl": _shift_left, "shr": _shr,
    "and": _bits("and"), "or": _bits("or"), "xor": _bits("xor"), "not": _not,
    "div": _div, "rem": _rem, "min": _min, "max": _max, "abs": _abs, "selp": _select,
    "popc": _each(lambda x: x.bit_count()), "bfe": _bit_field, "bfi": _bit_insert, "lop3": _lop3,
    "prmt": _prmt, "mov": _copy,
}  # fmt: skip


def compiled(parts: tuple[str, ...]) -> Callable[[Sequence[Value]], Value]:
    """`evaluate` for one opcode, with what the opcode alone decides decided."""
    name = parts[0]
    letter, width = bits_of(parts)
    if letter in ("f", "bf"):
        return lambda args: UNKNOWN
    operation = OPERATIONS.get(name)
    if operation is None:
        return lambda args: evaluate(parts, args)
    if letter != "s" and width == 32 and name in _PLAIN_NUMBERS:
        quick = _PLAIN_NUMBERS[name]

        def run(args: Sequence[Value]) -> Value:
            if type(args[0]) is int and type(args[1]) is int:
                return quick(args[0], args[1]) & 0xFFFFFFFF
            return operation(args, letter, width)

        return run
    return lambda args: operation(args, letter, width)


# Two 32-bit numbers, the result wrapped.
_PLAIN_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def evaluate(parts: tuple[str, ...], args: Sequence[Value]) -> Value:
    """The result of an integer or predicate instruction, UNKNOWN where it is not modelled."""
    name = parts[0]
    letter, width = bits_of(parts)
    if letter in ("f", "bf"):
        return UNKNOWN
    if name in ("mul", "mul24", "mad", "mad24"):
        return _multiply_add(parts, args, letter, width)
    if name == "cvt":
        source_letter, source_width = letter, width
        target = next((m for p in parts[1:] if (m := TYPE.match(p))), None)
        if target is None or target.group(1) in ("f", "bf"):
            return UNKNOWN
        value = wrap(args[0], source_letter, source_width)
        return wrap(value, target.group(1), int(target.group(2)))
    if name == "cvta":
        shared = any(part.startswith("shared") for part in parts)
        if not shared:
            return args[0]
        return add(args[0], GENERIC_SHARED, -1 if "to" in parts else 1)
    if name == "clz":
        return _each(lambda x: width - x.bit_length())(args, letter, width)
    if name == "bfind":
        return _each(lambda x: x.bit_length() - 1 if x else 0xFFFFFFFF)(args, letter, width)
    if name == "brev":
        return _each(lambda x: int(f"{x:0{width}b}"[::-1], 2))(args, letter, width)
    operation = OPERATIONS.get(name)
    return operation(args, letter, width) if operation else UNKNOWN


def _multiply_add(parts: tuple[str, ...], args: Sequence[Value], letter: str, width: int) -> Value:
    a, b = (wrap(arg, letter, width) for arg in args[:2])
    product = _multiply((a, b), letter, width)
    if "hi" in parts:
        if not is_number(product):
            return opaque(("mulhi", letter, width), args)
        product = product >> width  # type: ignore[operator]
    wide = 2 * width if "wide" in parts else width
    if len(args) > 2:
        product = add(product, args[2])
    return wrap(product, letter, wide)


def set_predicate(parts: tuple[str, ...], args: Sequence[Value]) -> Value:
    """`setp.<op>[.<and|or|xor>].<type>`."""
    letter, width = bits_of(parts)
    op = _COMPARE.get(parts[1])
    if op is None or letter in ("f", "bf"):
        return UNKNOWN
    sign = "u" if parts[1] in ("lo", "ls", "hi", "hs") else letter
    a, b = (wrap(arg, sign, width) for arg in args[:2])
    if not is_number(a) or not is_number(b):
        # Against an unknown, small negative numbers are meant as such: -1, not 4294967295.
        a, b = (wrap(x, "s" if letter != "u" else sign, width) for x in (a, b))
    found = compare(a, b, op)
    combine = next((p for p in parts[2:] if p in ("and", "or", "xor")), None)
    return logic(combine, found, args[2]) if combine and len(args) > 2 else found
