"""Values of registers: a number, a number per lane, a linear form over unknowns, or unknown.

The unknowns of a linear form (`Term`) are kernel parameters, special registers and whatever is
computed from them; equal computations give equal terms, so that two warps that both loop to `k/64`
are seen to loop equally often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

Lanes = np.ndarray[Any, np.dtype[Any]]
Number = int | Lanes

# Generic addresses of shared memory start here; no allocation of global memory is known to.
GENERIC_SHARED = 1 << 56

Term = tuple[Any, ...]
# Pieces of a name or predicate, at most: each computation on unknowns nests those of its operands,
# so that a few lines could make names of any size. The longest seen has 349.
_LONGEST = 2000
_WIDEST = 256  # bits of a coefficient


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Nothing is known."""


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True, eq=False)
class Mixed(Unknown):
    """A value of its own in each thread, of which some are not numbers. Arithmetic knows nothing of
    it; a shuffle from one lane does."""

    each: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """`sum(coefficient * term) + constant`; at least one term."""

    terms: tuple[tuple[Term, int], ...]
    constant: Number = 0

    def key(self) -> Term:
        """A hashable name of this value."""
        constant = self.constant
        shown = constant if isinstance(constant, int) else ("lanes", constant.tobytes())
        return ("linear", self.terms, shown)


@dataclass(frozen=True, slots=True)
class Compare:
    """`value <op> 0`, with op of `lt le eq ne`."""

    value: Linear
    op: str


@dataclass(frozen=True, slots=True)
class Logic:
    """`and`, `or`, `xor`, `not` of predicates of which at least one is not known."""

    op: str
    args: tuple[Any, ...]


Value = int | Lanes | Linear | Unknown | Compare | Logic


@lru_cache(maxsize=16384)
def term(*parts: Any) -> Value:
    """The unknown of the given name; UNKNOWN where that is too long to be compared with."""
    return Linear(((parts, 1),)) if _short(parts) else UNKNOWN


def _short(whole: Any) -> bool:
    """Whether a value or name has no more than `_LONGEST` pieces, however they nest."""
    work, seen = [whole], 0
    while work:
        part = work.pop()
        seen += 1
        if seen > _LONGEST:
            return False
        if isinstance(part, Compare):
            part = part.value
        if isinstance(part, Linear):
            part = part.terms
        elif isinstance(part, Logic):
            part = part.args
        if isinstance(part, tuple):
            work += part
    return True


def is_number(value: Value) -> bool:
    """Whether every lane's value is known."""
    return isinstance(value, (int, np.ndarray))


def key_of(value: Value) -> Term:
    """A hashable name of a number or linear form."""
    if isinstance(value, Linear):
        return value.key()
    if isinstance(value, np.ndarray):
        return ("lanes", value.tobytes())
    return ("number", int(value))  # type: ignore[arg-type]


def key_of_predicate(value: Any) -> Term:
    """A hashable name of a predicate, of which at least a part is not known."""
    if isinstance(value, Compare):
        return (value.op, value.value.key())
    if isinstance(value, Logic):
        return (value.op, *map(key_of_predicate, value.args))
    return (value,) if isinstance(value, Unknown) else key_of(value)


def add(a: Value, b: Value, sign: int = 1) -> Value:
    """`a + sign*b`."""
    if is_number(a) and is_number(b):
        try:
            return a + sign * b  # type: ignore[operator]
        except OverflowError:  # beyond what lanes hold
            return UNKNOWN
    if not _arithmetic(a) or not _arithmetic(b):
        return UNKNOWN
    terms: dict[Term, int] = dict(a.terms) if isinstance(a, Linear) else {}
    if isinstance(b, Linear):
        for name, coefficient in b.terms:
            terms[name] = terms.get(name, 0) + sign * coefficient
    try:
        constant = _constant(a) + sign * _constant(b)
    except OverflowError:
        return UNKNOWN
    left = tuple(sorted(((n, c) for n, c in terms.items() if c), key=repr))
    return _linear(left, constant) if left else constant


def _linear(terms: tuple[tuple[Term, int], ...], constant: Number) -> Value:
    """A linear form; UNKNOWN where it has left what registers hold by far."""
    numbers = [coefficient for _, coefficient in terms]
    if isinstance(constant, int):
        numbers.append(constant)
    if any(number.bit_length() > _WIDEST for number in numbers):
        return UNKNOWN
    return Linear(terms, constant)


def scale(a: Value, factor: int) -> Value:
    """`a * factor`."""
    try:
        if is_number(a):
            return a * factor  # type: ignore[operator]
        if not isinstance(a, Linear):
            return UNKNOWN
        if not factor:
            return 0
        return _linear(tuple((n, c * factor) for n, c in a.terms), a.constant * factor)
    except OverflowError:
        return UNKNOWN


def _arithmetic(value: Value) -> bool:
    return is_number(value) or isinstance(value, Linear)


def _constant(value: Value) -> Number:
    return value.constant if isinstance(value, Linear) else value  # type: ignore[return-value]


def plain(value: Value) -> Value:
    """Lanes that all agree become one number."""
    if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
        return int(value[0])
    return value


def take(value: Value, lanes: Lanes) -> Value:
    """The value of some of the lanes (indices)."""
    if isinstance(value, np.ndarray):
        return plain(value[lanes])
    if isinstance(value, Linear) and isinstance(value.constant, np.ndarray):
        return Linear(value.terms, plain(value.constant[lanes]))  # type: ignore[arg-type]
    if isinstance(value, Compare):
        return Compare(take(value.value, lanes), value.op)  # type: ignore[arg-type]
    if isinstance(value, Logic):
        return logic(value.op, *(take(arg, lanes) for arg in value.args))
    return mixed([value.each[at] for at in lanes.tolist()]) if isinstance(value, Mixed) else value


def mixed(values: Sequence[Value]) -> Value:
    """One value for each thread, as one."""
    first = values[0]
    keys = {key_of(v) if isinstance(v, (int, Linear)) else id(v) for v in values}
    if len(keys) == 1:
        return first
    return Mixed(tuple(values)) if any(isinstance(v, Linear) for v in values) else UNKNOWN


def expanded(value: Value, count: int) -> list[Value]:
    """The value of each of some threads; UNKNOWN where lanes differ in more than a number."""
    if isinstance(value, Mixed):
        return list(value.each)
    if isinstance(value, np.ndarray):
        return value.tolist()
    whole = isinstance(value, int) or (
        isinstance(value, Linear) and isinstance(value.constant, int)
    )
    return [value if whole else UNKNOWN] * count


# Data: what a load, an atomic or a place in shared memory gave at one moment. Whoever has it by
# that name has the same; where it came from, as a line, is the second part of the name.
DATA = ("datum", "stored")


def of_data(terms: tuple[tuple[Term, int], ...]) -> bool:
    """Whether data is among these."""
    return any(name[0] in DATA for name, _ in terms)


# What memory holds that the kernel does not write, and what code made that was not followed.
_MEMORY = ("global", "either")


def from_memory(terms: tuple[tuple[Term, int], ...]) -> int:
    """How many different things that memory holds these are computed from."""
    found: set[Term] = set()
    work: list[Any] = [name for name, _ in terms]
    while work:
        part = work.pop()
        if not isinstance(part, tuple):
            continue
        if part[:1] and part[0] in _MEMORY:
            found.add(part)
        else:
            work += part
    return len(found)


def comparisons(predicate: Any) -> Iterator[Compare]:
    """The comparisons that a predicate is made of."""
    if isinstance(predicate, Compare):
        yield predicate
    elif isinstance(predicate, Logic):
        for arg in predicate.args:
            yield from comparisons(arg)


def compare(a: Value, b: Value, op: str) -> Value:
    """A predicate: 0/1 (per lane) where known, else a Compare or UNKNOWN."""
    if is_number(a) and is_number(b):
        found = _NUMBERS[op](a, b)
        return plain(found.astype(np.int64)) if isinstance(found, np.ndarray) else int(found)
    difference = add(a, b, -1)
    if not isinstance(difference, Linear):
        if is_number(difference):  # the unknowns cancel
            return compare(difference, 0, op)
        return UNKNOWN
    sign = -1 if op in ("gt", "ge") else 1
    terms = tuple((name, sign * coefficient) for name, coefficient in difference.terms)
    constant: Number = sign * plain(difference.constant)  # type: ignore[operator]
    return Compare(Linear(terms, constant), {"gt": "lt", "ge": "le"}.get(op, op))


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def logic(op: str, *args: Value) -> Value:
    """A predicate made of predicates; known parts are folded."""
    if op == "not":
        (a,) = args
        if is_number(a):
            return 1 - (a != 0)
        if isinstance(a, Logic) and a.op == "not":
            return a.args[0]
        if isinstance(a, Unknown) or not _short(a):
            return UNKNOWN
        return Logic("not", (a,))
    a, b = args
    if is_number(a) and is_number(b):
        return {"and": a & b, "or": a | b, "xor": a ^ b}[op]  # type: ignore[operator]
    for known, other in ((a, b), (b, a)):
        if isinstance(known, int):
            if op == "and":
                return other if known else 0
            if op == "or":
                return 1 if known else other
            return logic("not", other) if known else other
    if isinstance(a, Unknown) or isinstance(b, Unknown) or not _short((a, b)):
        return UNKNOWN
    return Logic(op, (a, b))


def canonical(value: Linear) -> tuple[tuple[tuple[Term, int], ...], int, int]:
    """The terms with coprime coefficients and a positive first one, the factor taken out, and
    the constant: `value = factor * terms + constant`."""
    factor = 0
    for _, coefficient in value.terms:
        factor = gcd(factor, coefficient)
    if value.terms[0][1] < 0:
        factor = -factor
    return tuple((n, c // factor) for n, c in value.terms), factor, int(value.constant)
