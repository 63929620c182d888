"""What is searched: every combination of the knobs that a schedule declares.

The schedule says it, run once with its defaults and once for each single choice. A choice that
changes what the kernel is called with is no faster way to do the same: it is left out, unless it
is asked for.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError, MlagenError
from mlagen.legal_names import require_name

Value = int | float | str | bool
Knobs = Mapping[str, Value]
_PATIENCE = 2.0  # seconds that a schedule may run, once


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One knob: what may be chosen, the default first."""

    name: str
    choices: tuple[Value, ...]
    comment: str = ""


class SearchSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The product of its dimensions. `left_out`: choices that were taken away, and why."""

    dimensions: tuple[Dimension, ...]
    left_out: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Variants."""
        return math.prod(len(dimension.choices) for dimension in self.dimensions)

    @property
    def default(self) -> dict[str, Value]:
        return {dimension.name: dimension.choices[0] for dimension in self.dimensions}

    def variant(self, number: int) -> dict[str, Value]:
        """Variant `number` of `size`; 0 is the default."""
        chosen: dict[str, Value] = {}
        for dimension in reversed(self.dimensions):
            number, index = divmod(number, len(dimension.choices))
            chosen[dimension.name] = dimension.choices[index]
        return {dimension.name: chosen[dimension.name] for dimension in self.dimensions}

    def variants(self, first: int = 0) -> Iterator[dict[str, Value]]:
        """All of them, from number `first` on and round."""
        return (self.variant((first + number) % self.size) for number in range(self.size))

    def holds(self, knobs: Knobs) -> bool:
        """Whether `knobs` is one of the variants."""
        choices = {dimension.name: dimension.choices for dimension in self.dimensions}
        return knobs.keys() == choices.keys() and all(
            value in choices[name] for name, value in knobs.items()
        )


def knobs_key(knobs: Knobs) -> str:
    """The text by which a variant is known."""
    return json.dumps(dict(sorted(knobs.items())), separators=(",", ":"))


def differing(knobs: Knobs, default: Knobs) -> str:
    """The knobs that are not at their default, as text."""
    rest = [f"{name}={value}" for name, value in knobs.items() if default.get(name) != value]
    return ", ".join(rest) or "default"


def space_of(function: Any, problem: Any, limits: Mapping[str, str]) -> SearchSpace:
    """The space of a schedule function for a problem.

    `limits`: choices by knob, as `--knob` has them: one, or several with commas between.
    ConfigError for a knob or choice that there is not, and for a space without a variant.
    """
    declared = schedule_of(function, problem, {}).declared
    first = {name: _first(text, declared.get(name)) for name, text in limits.items()}
    if first:
        if unknown := first.keys() - declared.keys():  # declared under another choice, perhaps
            try:
                declared = schedule_of(function, problem, first).declared
            except ConfigError:
                require_name("knob", sorted(unknown)[0], declared)
                raise
        else:
            declared = schedule_of(function, problem, first).declared
    tried = [knob for knob in declared.values() if not knob.setting or knob.name in limits]
    if not tried:
        raise ConfigError(
            f"{function.name} declares no knobs: there is nothing to tune",
            hint="s.choice(NAME, CHOICE, ..) in a schedule declares one",
        )
    whole = [
        Dimension(knob.name, _limited(knob, limits.get(knob.name)), knob.comment) for knob in tried
    ]
    return _same_call(function, problem, whole, asked=frozenset(limits))


def _first(text: str, knob: Any | None) -> Value:
    if knob is not None:
        return _limited(knob, text)[0]
    return text.split(",")[0].strip()


def _limited(knob: Any, text: str | None) -> tuple[Value, ...]:
    """The choices of a knob that `text` names, in its order."""
    if text is None:
        return tuple(knob.choices)
    by_text = {str(choice): choice for choice in knob.choices}
    pieces = [text] if text in by_text else [piece.strip() for piece in text.split(",")]
    pieces = [piece for piece in pieces if piece]
    if not pieces:
        raise ConfigError(
            f"--knob {knob.name}={text!r} leaves no choice: the space is empty",
            hint="choices: " + ", ".join(by_text),
        )
    for piece in pieces:
        if piece not in by_text and knob.span is not None:
            by_text[piece] = knob.number(piece)
        if piece not in by_text:
            raise ConfigError(
                f"knob {knob.name}={piece!r} is not among its choices",
                hint="choices: " + ", ".join(by_text),
            )
    return tuple(dict.fromkeys(by_text[piece] for piece in pieces))


def _same_call(
    function: Any, problem: Any, dimensions: list[Dimension], asked: frozenset[str]
) -> SearchSpace:
    """Without the choices that the problem forbids, and those that change arguments or grid. A
    resource that runs out by a single choice may last beside others: it stays, and trials tell. So
    does a choice that is there beside another one only, as slots of smaller tiles are."""
    base = {dimension.name: dimension.choices[0] for dimension in dimensions}
    wanted = interface(schedule_of(function, problem, base).signature)
    kept, left_out = [], []
    beside: dict[str, dict[Value, None]] = {}  # choices of other knobs that a choice brings
    for dimension in dimensions:
        choices = [dimension.choices[0]]
        for choice in dimension.choices[1:]:
            what = f"{dimension.name}={choice}"
            try:
                with _seconds(_PATIENCE):
                    made = schedule_of(function, problem, {**base, dimension.name: choice})
            except ConfigError as error:
                if dimension.name in asked:
                    raise
                left_out.append(f"{what}: {error.message}")
                continue
            except (MlagenError, TimeoutError):
                choices.append(choice)
                continue
            if interface(made.signature) == wanted:
                choices.append(choice)
                for knob in made.declared.values():
                    if knob.name not in asked and not knob.setting:
                        beside.setdefault(knob.name, {}).update(dict.fromkeys(knob.choices))
                continue
            if dimension.name in asked:
                raise ConfigError(
                    f"{what} is called with other arguments than "
                    f"{dimension.name}={dimension.choices[0]}: they cannot be compared",
                    hint=f"tune one at a time: --knob {what}",
                )
            left_out.append(f"{what}: other arguments; --knob '{what}' tunes among its like")
        kept.append(Dimension(dimension.name, tuple(choices), dimension.comment))
    for number, dimension in enumerate(dimensions):
        more = [c for c in beside.get(dimension.name, ()) if c not in dimension.choices]
        whole = (*kept[number].choices, *more)
        kept[number] = Dimension(dimension.name, whole, dimension.comment)
    return SearchSpace(tuple(kept), tuple(left_out))


def interface(signature: Any) -> tuple[Any, ...]:
    """What a caller has to know: arguments, and the sizes that the grid asks for."""
    arguments = tuple((a.name, a.offset, a.kind, a.access) for a in signature.arguments)
    return arguments, tuple(size for size, _ in signature.grid)


@contextmanager
def _seconds(limit: float) -> Iterator[None]:
    """TimeoutError in Python code that takes more CPU time: a trial's own limit will tell of it."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
