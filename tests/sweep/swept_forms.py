"""The cross product of what the shipped kernels can be asked for: problems' fields times knobs.

A field's values come from what its class tells (`told`): tuples, booleans and ranges as they are.
Words stand for values of `WORDS`, so a field that is told in new words has to be told here, too.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from mlagen.codegen.build import run_schedule
from mlagen.codegen.schedules import load, names
from mlagen.errors import MlagenError
from mlagen.problem.fields import BOOLEANS, problem_of

MASKS = ("null", "causal", *(
    f"{kind}[{keys}]" for kind in ("sliding_window_causal", "chunked_causal")
    for keys in (1, 64, 77, 200, 4096)
))  # fmt: skip
MANY = 300  # of a longer range these are powers of two, what is three times one, and both ends
PLAIN = 0.35  # of the draws of knobs take each knob's default
FEW, SELDOM = 1000, 8  # kernels with at most so many problems have each so many'th turn
TRIES = 100_000  # draws of fields until a problem is legal
KNOB = 0.3  # of the other draws' knobs are not the default

# What words of a field stand for, by the field's name.
WORDS: Mapping[str, tuple[Any, ...]] = {
    "mask": MASKS,
    "page_size": (0, 1, 8, 16, 32, 64, 128, 192, 256, 1024, 65536),
    "cache_depth": (576, 512, 640),
    "rope_cache_offset": (512, 448),
}


@dataclass(frozen=True, slots=True)
class Form:
    """One kernel that may be asked for. `knobs`: those that are not the schedule's defaults."""

    kernel: str
    fields: tuple[tuple[str, Any], ...]
    knobs: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        """As `mlagen build` takes it."""
        fields = (f"--set {name}={_text(value)}" for name, value in self.fields)
        knobs = (f"--knob {name}={_text(value)!r}" for name, value in self.knobs)
        return " ".join((self.kernel, *fields, *knobs))


def values_of(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    """The values of a problem's field that a sweep takes. LookupError: it is told in words that
    nothing here stands for."""
    legal = field.metadata.get("legal")
    if legal == BOOLEANS:
        return False, True
    if isinstance(legal, tuple):
        return legal
    if field.name in WORDS:
        return WORDS[field.name]
    if legal is not None and (found := re.match(r"(\d+) \.\. (\d+)", legal)):
        first, last = int(found[1]), int(found[2])
        if last - first < MANY:
            return tuple(range(first, last + 1))
        powers = {n << shift for shift in range(last.bit_length()) for n in (1, 3)}
        return tuple(sorted({first, last, *(n for n in powers if first <= n <= last)}))
    raise LookupError(f"{field.name}: no values are known for {legal!r}: add them to WORDS")


def problems(kernel: str) -> int:
    """How many problems the product of the fields has, refused ones among them."""
    return math.prod(len(values_of(field)) for field in _fields(kernel))


def forms(
    seed: int, kernels: tuple[str, ...] = (), among: Mapping[str, Sequence[Any]] | None = None
) -> Iterator[Form]:
    """Forms without end, those of a seed always the same: a kernel after the other, those of few
    problems seldom; of each any problem that its class takes, and knobs. `among`: values, as they
    are written, that a field or a knob of this name is drawn from instead of all of its own."""
    kernels = kernels or tuple(names())
    drawn = random.Random(seed)
    for turn in count():
        for kernel in kernels:
            if turn % SELDOM == 0 or problems(kernel) > FEW:
                yield _form(kernel, drawn, among or {})


def _within(name: str, values: Sequence[Any], among: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
    """Of a field's or a knob's values those that are wanted; all where it has none of these."""
    wanted = [value for value in values if _text(value) in map(str, among.get(name, ()))]
    return wanted or values


def _form(kernel: str, drawn: random.Random, among: Mapping[str, Sequence[Any]]) -> Form:
    function = load(kernel)
    for _ in range(TRIES):
        fields = {
            field.name: drawn.choice(_within(field.name, values_of(field), among))
            for field in _fields(kernel)
        }
        if "num_kv_heads" in fields.keys() - among.keys() and drawn.random() < 0.6:
            fields["num_kv_heads"] = 1
        try:
            problem_of(function.problem_type, fields)
        except MlagenError:
            continue
        return Form(kernel, tuple(fields.items()), _knobs(kernel, fields, drawn, among))
    raise LookupError(f"{kernel}: no problem in {TRIES} draws is legal")


def _knobs(
    kernel: str, fields: Mapping[str, Any], drawn: random.Random, among: Mapping[str, Sequence[Any]]
) -> tuple[tuple[str, Any], ...]:
    """Of the knobs that the schedule declares for this problem, and for the values drawn so far."""
    if drawn.random() < PLAIN and not among:
        return ()
    function = load(kernel)
    problem = problem_of(function.problem_type, fields)
    chosen: dict[str, Any] = {}
    looked_at: set[str] = set()
    while True:
        try:
            declared = run_schedule(function, problem, knobs=chosen)[1].declared
        except MlagenError:  # the builder of the form tells what refuses it
            return tuple(chosen.items())
        if not (new := [name for name in declared if name not in looked_at]):
            return tuple(chosen.items())
        for name in new:
            looked_at.add(name)
            if name in among or drawn.random() < KNOB:
                knob = declared[name]
                values = (*knob.choices, *(knob.span or ()))
                chosen[name] = drawn.choice(_within(name, values, among))


def _fields(kernel: str) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(load(kernel).problem_type)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
