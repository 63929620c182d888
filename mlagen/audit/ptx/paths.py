"""Which way branches go that depend on unknowns: one set of decisions after the other.

A decision on `term <op> number` narrows the term's interval, so that all warps of a run agree on
every size; a run is one path of the block. Runs are enumerated depth first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlagen.audit.ptx.arithmetic import evaluate
from mlagen.audit.ptx.values import DATA, Compare, Lanes, Term, canonical, of_data

Terms = tuple[tuple[Term, int], ...]

_INFINITE = 1 << 70
_NAMED = {"param", "special", "global", "symbol", "parameter", *DATA}
_DIVISIONS = ("_div", "_rem")
# Values tried when a path is checked for being possible.
_CANDIDATES = 4096
_FREE = 2  # times that a branch on data is taken both ways


@dataclass(slots=True)
class _Interval:
    low: int
    high: int = _INFINITE
    excluded: set[int] = field(default_factory=set)

    def holds(self, number: int) -> bool:
        """Whether a value is left."""
        return self.low <= number <= self.high and number not in self.excluded


class Stuck(Exception):
    """A run went on for longer than it may."""


class Fork(Exception):
    """A decision can be taken both ways; nothing was changed by asking."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first


@dataclass(slots=True)
class Path:
    """The decisions of one run: `prefix` is followed, then the first choice each time, or, where
    the path is `forking`, a `Fork` is raised for whoever walks the tree."""

    prefix: tuple[bool, ...]
    trips: int  # questions about sizes before the smallest is taken
    forking: bool = False
    taken: list[bool] = field(default_factory=list)
    intervals: dict[Terms, _Interval] = field(default_factory=dict)
    truncated: bool = False
    guesses: dict[int, int] = field(default_factory=dict)  # data-dependent branches, per pc
    # Values of unknowns; with them given, addresses and lanes are known that were not before.
    fixed: Mapping[Term, int] = field(default_factory=dict)
    blocks: int = 1  # of a CTA cluster
    unresolved: bool = False  # something was left open that `fixed` could tell
    partly_loaded: bool = False  # some lanes have data, and others not
    bounds: Mapping[Term, int] = field(default_factory=dict)  # of unknowns: what they do not reach
    witness: dict[Term, int] | None = None  # values that take this path, when last looked for
    empty: bool = False  # it leads around a loop, as a range that memory tells is empty
    skipped: set[Term] = field(default_factory=set)  # branches that were not followed
    _asked: dict[Terms, int] = field(default_factory=dict)
    _data: dict[Term, dict[Terms, None]] = field(default_factory=dict)  # by where it comes from
    _chosen: dict[tuple[int, int], bool] = field(default_factory=dict)

    def clone(self) -> Path:
        """The same decisions, to be continued in another way."""
        held = {t: _Interval(i.low, i.high, set(i.excluded)) for t, i in self.intervals.items()}
        return replace(
            self,
            taken=list(self.taken),
            intervals=held,
            guesses=dict(self.guesses),
            skipped=set(self.skipped),
            _asked=dict(self._asked),
            _data={name: dict(found) for name, found in self._data.items()},
            _chosen=dict(self._chosen),
        )

    def choose(self, choice: bool) -> None:
        """Settles the decision that raised `Fork`."""
        self.prefix = (*self.taken, choice)

    def decide(self, predicate: Compare, leaving: bool | None = None) -> bool:
        """The truth of a comparison with unknowns. `leaving`: the truth that leaves the loop which
        asks, where one does; it comes first, else the smaller size does."""
        terms, factor, constant = canonical(predicate.value)
        interval = self.intervals.get(terms)
        if interval is None:
            interval = self.intervals[terms] = self._fresh(terms)
        op = predicate.op
        if op in ("eq", "ne"):
            whole, rest = divmod(-constant, factor)
            first = True if leaving is None else leaving is (op == "eq")
            answer = False if rest else self._equal(terms, interval, whole, first)
            return answer if op == "eq" else not answer
        # factor * T < -constant (lt) or <= (le)
        bound = -constant - (1 if op == "lt" else 0)
        if factor > 0:
            return self._at_most(terms, interval, bound // factor, leaving is not False)
        # T >= ceil(bound / factor)  <=>  not T <= that - 1
        return not self._at_most(terms, interval, -(bound // -factor) - 1, leaving is not True)

    def settled(self, predicate: Compare) -> bool | None:
        """The truth of a comparison, where no decision is needed for it."""
        terms, factor, constant = canonical(predicate.value)
        interval = self.intervals.get(terms) or self._fresh(terms)
        low, high = factor * interval.low + constant, factor * interval.high + constant
        low, high = min(low, high), max(low, high)
        if predicate.op in ("eq", "ne"):
            whole, rest = divmod(-constant, factor)
            if rest or not interval.holds(whole):
                return predicate.op == "ne"
            return predicate.op == "eq" if low == high else None
        if predicate.op == "lt":
            return True if high < 0 else False if low >= 0 else None
        return True if high <= 0 else False if low > 0 else None

    def guess(self, pc: int, occurrence: int, way_out: bool) -> bool:
        """A branch on data: every warp goes the same way at the same occurrence. After two free
        choices it is `way_out`, which leaves the loop that the branch may be part of."""
        key = (pc, occurrence)
        if key not in self._chosen:
            tried = self.guesses.get(pc, 0) + 1
            free = tried <= _FREE and not (self.unresolved or self.partly_loaded)
            self._chosen[key] = self._pick(way_out, free)
            self.guesses[pc] = tried
        return self._chosen[key]

    def leave_open(self, terms: Terms) -> None:
        """Something depends on these in more than a comparison: a run with values is needed."""
        if not of_data(terms):
            self.intervals.setdefault(terms, self._fresh(terms))
            self.unresolved = True

    def loads_parts(self, terms: Terms) -> None:
        """A size decides which lanes load data: what comes of it is not guessed any more."""
        self.intervals.setdefault(terms, self._fresh(terms))
        self.partly_loaded = True

    def _fresh(self, terms: Terms) -> _Interval:
        """What terms may be before anything is decided about them."""
        most = [c * (self.bounds[name] - 1) for name, c in terms if c > 0 and name in self.bounds]
        return _Interval(_lowest(terms), sum(most) if len(most) == len(terms) else _INFINITE)

    def _pick(self, first: bool, free: bool) -> bool:
        at = len(self.taken)
        if at < len(self.prefix):
            choice = self.prefix[at]
        elif free and self.forking:
            raise Fork(first)
        else:
            choice = first
        self.taken.append(choice)
        return choice

    def _equal(self, terms: Terms, interval: _Interval, number: int, first: bool) -> bool:
        if not interval.low <= number <= interval.high or number in interval.excluded:
            return False
        if interval.low == interval.high:
            return True
        if self._ask(terms, first):
            interval.low = interval.high = number
            return True
        if number == interval.low:
            interval.low += 1
        elif number == interval.high:
            interval.high -= 1
        else:
            interval.excluded.add(number)
        return False

    def _at_most(self, terms: Terms, interval: _Interval, number: int, first: bool) -> bool:
        if interval.high <= number:
            return True
        if interval.low > number:
            return False
        if self._ask(terms, first):
            interval.high = number
            return True
        interval.low = number + 1
        return False

    def _ask(self, terms: Terms, first: bool) -> bool:
        """Takes a decision about `terms`; whether to take `first` is what a path is made of. Data
        that comes again and again is free the first two times, as in `guess`."""
        if of_data(terms):
            kind = tuple((name[:2] if name[0] in DATA else name, c) for name, c in terms)
            before = self._data.setdefault(kind, {})
            if terms not in before and len(before) >= _FREE:
                return first if self._pick(True, False) else not first
            before[terms] = None
        # The rounds of nested loops share the allowance; each question has two answers at least.
        times = self._asked.get(terms, 0) + 1
        asked = sum(self._asked.values()) + 1 - len({*self._asked, terms})
        choice = self._pick(True, asked < self.trips)
        self._asked[terms] = times
        if asked >= self.trips:
            self.truncated = True
        return first if choice else not first

    def possible(self) -> bool:
        """Whether values of the unknowns are found that take this path."""
        if self.witness is not None and self._takes(self.witness):
            return True
        found = self.witnesses()
        self.witness = found[0] if found else None
        return bool(found)

    def _takes(self, values: dict[Term, int]) -> bool:
        arrays = {name: np.array([number]) for name, number in values.items()}
        if any(number >= self.bounds.get(name, _INFINITE) for name, number in values.items()):
            return False
        for terms, interval in self._bound().items():
            if any(name not in arrays for name in _variables(terms)):
                return False
            number = _sum(terms, arrays)
            if number is not None and not interval.holds(int(number[0])):
                return False
        return bool((_divisible(self.intervals, arrays) & _launched(arrays, self.blocks)).all())

    def witnesses(self) -> list[dict[Term, int]]:
        """Values of the unknowns that take this path: small ones, and large ones where they
        differ. Empty: none were found."""
        return self.found({})

    def found(self, least: Mapping[Term, int]) -> list[dict[Term, int]]:
        """As `witnesses`, and those of `least` no smaller."""
        intervals = self._bound()
        variables = sorted({v for terms in intervals for v in _variables(terms)}, key=repr)
        if not variables:
            return [{}]
        for values in _candidates(variables, intervals):
            values |= {v: np.maximum(values[v], low) for v, low in least.items() if v in values}
            _fit_the_grid(values, self.blocks)
            good = _divisible(intervals, values)
            for name in self.bounds.keys() & values.keys():
                good &= values[name] < self.bounds[name]
            for terms, interval in intervals.items():
                number = _sum(terms, values)
                if number is None:
                    continue
                good &= (number >= interval.low) & (number <= min(interval.high, 1 << 62))
                for excluded in interval.excluded:
                    good &= number != excluded
            places = np.flatnonzero(good)
            if places.size:
                return [
                    {v: int(values[v][at]) for v in variables}
                    for at in dict.fromkeys((int(places[0]), int(places[-1])))
                ]
        return []

    def _bound(self) -> dict[Terms, _Interval]:
        """What is decided, but where a datum is free to be what is wanted: nothing else has it."""
        left = dict(self.intervals)
        while True:
            uses = Counter(name for terms in left for name in set(_variables(terms)))
            loose = [
                terms
                for terms, interval in left.items()
                if any(n[0] in DATA and abs(c) == 1 and uses[n] == 1 for n, c in terms)
                and interval.low <= interval.high
            ]
            if not loose:
                return left
            for terms in loose:
                del left[terms]


def named_again(values: Mapping[Term, int]) -> dict[Term, int]:
    """The same values by the names that they have in a run with these values: what is loaded is
    named by its address, of which parts are numbers then."""
    arrays = {name: np.array([number]) for name, number in values.items()}
    found = dict(values)
    for name, number in values.items():
        if name[0] == "global" and name[1][0] == "linear":
            found["global", _with_numbers(name[1], arrays), *name[2:]] = number
    return found


def _with_numbers(address: Term, values: dict[Term, Lanes]) -> Term:
    """The key of a linear form, with the numbers of the terms that these values tell."""
    _, terms, constant = address
    left = []
    for name, coefficient in terms:
        number = _number(name, values)
        if number is None:
            left.append((name, coefficient))
        else:
            constant += coefficient * int(np.asarray(number).flat[0])
    return ("linear", tuple(left), constant)


def told(values: Mapping[Term, int]) -> str:
    """`k = 64, rows = 3`, for a finding."""
    return ", ".join(f"{_name(variable)} = {number}" for variable, number in values.items())


def _lowest(terms: Terms) -> int:
    """Sizes and indices are not negative; a difference may be, and data."""
    sizes = all(coefficient > 0 for _, coefficient in terms) and not of_data(terms)
    return 0 if sizes else -_INFINITE


def _variables(terms: Terms) -> Iterator[Term]:
    for name, _ in terms:
        yield from _of_term(name)


def _of_term(name: Term) -> Iterator[Term]:
    if name[0] in _NAMED:
        yield name
        return
    for part in name:
        if isinstance(part, tuple) and part[:1] == ("linear",):
            yield from _variables(part[1])


def _divisors(terms: Terms) -> Iterator[tuple[Terms, int]]:
    """By what is divided to compute these."""
    for name, _ in terms:
        for at, part in enumerate(name):
            if not isinstance(part, tuple) or part[:1] != ("linear",):
                continue
            yield from _divisors(part[1])
            if at == len(name) - 1 and name[0] in _DIVISIONS and isinstance(part[2], int):
                yield part[1], part[2]


def _divisible(intervals: Mapping[Terms, _Interval], values: dict[Term, Lanes]) -> Any:
    """For each of the values, whether nothing is divided by zero: what that gives is not defined,
    and no kernel is launched so."""
    good = np.ones(next((v.size for v in values.values()), 1), bool)
    for own, constant in {divisor for terms in intervals for divisor in _divisors(terms)}:
        number = _sum(own, values)
        if number is not None:
            good &= number + constant != 0
    return good


def _fit_the_grid(values: dict[Term, Lanes], blocks: int) -> None:
    """Makes a grid's size one that has the block, or the cluster, whose number is tried."""
    for axis in "xyz":
        size = ("special", f"nctaid.{axis}")
        together = blocks if axis == "x" else 1
        numbers = ("special", f"{'clusterid' if together > 1 else 'ctaid'}.{axis}")
        if size in values:
            values[size] = together * (values.get(numbers, 0) + np.maximum(values[size], 1))


def _launched(values: dict[Term, Lanes], blocks: int) -> Any:
    """Whether a grid has the blocks whose numbers are given."""
    good = np.ones(next((v.size for v in values.values()), 1), bool)
    for axis in "xyz":
        size = values.get(("special", f"nctaid.{axis}"))
        together = blocks if axis == "x" else 1
        numbers = ("special", f"{'clusterid' if together > 1 else 'ctaid'}.{axis}")
        if size is not None:
            good &= (size % together == 0) & (size > together * values.get(numbers, 0))
    return good


def _candidates(
    variables: list[Term], intervals: Mapping[Terms, _Interval]
) -> Iterator[dict[Term, Lanes]]:
    """Values to try: all small ones, then ever larger ones at random, then the bounds that the
    decisions named, their neighbours and their products with powers of two."""
    if len(variables) == 1:
        yield {variables[0]: np.arange(_CANDIDATES, dtype=np.int64)}
    rng = np.random.default_rng(0)
    if len(variables) > 1:
        for top in (8, 64, 512, 4096):
            yield {v: rng.integers(0, top, _CANDIDATES) for v in variables}
    bounds = {0, 1}
    for interval in intervals.values():
        for bound in (interval.low, interval.high, *interval.excluded):
            if 0 <= bound < 1 << 40:
                bounds |= {max((bound << s) + d, 0) for s in range(9) for d in (-1, 0, 1)}
    pool = np.array(sorted(bounds), np.int64)
    if len(variables) == 1:
        yield {variables[0]: np.resize(pool, _CANDIDATES)}
    else:
        for _ in range(2):
            yield {v: rng.choice(pool, _CANDIDATES) for v in variables}


def _sum(terms: Terms, values: dict[Term, Lanes]) -> Lanes | None:
    total: Any = 0
    for name, coefficient in terms:
        number = _number(name, values)
        if number is None:
            return None
        total = total + coefficient * number
    size = next((v.size for v in values.values()), 1)
    return np.broadcast_to(np.asarray(total), (size,))


def _number(name: Term, values: dict[Term, Lanes]) -> Any:
    if name in values:
        return values[name]
    op, rest = name[0], name[1:]
    keys = [part for part in rest if isinstance(part, tuple)]
    plain = [part for part in rest if not isinstance(part, tuple)]
    args: list[Any] = []
    for key in keys:
        if key[0] == "number":
            args.append(key[1])
        elif key[0] == "linear" and isinstance(key[2], int):
            inner = _sum(key[1], values)
            if inner is None:
                return None
            args.append(inner + key[2])
        else:
            return None
    letter, width = (plain[0], plain[1]) if len(plain) == 2 else ("u", 64)
    mode = ("lo",) if op == "mul" else ()
    found = evaluate((op.lstrip("_"), *mode, f"{letter}{width}"), args)
    return found if isinstance(found, (int, np.ndarray)) else None


def _name(variable: Term) -> str:
    """A parameter's or special register's name; what is loaded is told by its pointer."""
    if variable[0] == "global":
        pointers = [_name(name) for name in _of_address(variable[1])]
        return f"[{', '.join(pointers)}]"
    if variable[0] in DATA:
        return f"data of line {variable[1]}"
    if variable[0] == "param" and len(variable) > 2:  # a field of a structure, by its offset
        return f"{variable[1]}+{variable[2]}"
    return str(variable[1]) if len(variable) > 1 else str(variable[0])


def _of_address(key: Term) -> list[Term]:
    return [name for name, _ in key[1] if name[0] == "param"] if key[0] == "linear" else []
