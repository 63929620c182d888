"""Knobs: the choices that a schedule declares and a tuner makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from mlagen.errors import ConfigError, ScheduleError
from mlagen.legal_names import nearest


@dataclass(frozen=True, slots=True)
class Knob:
    """A tunable choice of a schedule; the tuner's space is the product of all of them. With `span`
    every number from its first to its last is legal, and `choices` are those that a tuner tries.
    `setting`: a choice that is no matter of speed alone: tuners leave it at its default unless they
    are asked, and texts and manifests tell it only where it is another."""

    name: str
    choices: tuple[Any, ...]
    default: Any
    comment: str
    span: tuple[float, float] | None = None
    setting: bool = False

    def number(self, value: Any) -> float:
        """`value`, or its text, as a number of the span. ConfigError: it is none."""
        least, most = self.span or (-math.inf, math.inf)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and least <= number <= most):
            raise ConfigError(
                f"knob {self.name}={value!r} is no number in {least:g} .. {most:g}",
                hint=self.comment or None,
            )
        return number


class UnknownKnobError(ConfigError):
    """Knobs that a schedule was given and did not declare. `names`: theirs."""

    def __init__(self, schedule: str, names: Sequence[str], declared: Iterable[str]) -> None:
        legal = sorted(declared)
        super().__init__(
            f"{schedule} has no knob {names[0]!r}",
            hint=f"{nearest(names[0], legal)}knobs: {', '.join(legal) or 'none'}",
        )
        self.names = tuple(names)


@runtime_checkable
class Config(Protocol):
    """A problem and some knobs, given as one value. `kernel`: the schedule that has them."""

    kernel: ClassVar[str]

    def parts(self) -> tuple[Any, dict[str, Any]]:
        """The problem, and the knobs by name."""
        ...

    def to_fields(self) -> dict[str, Any]:
        """Fields and knobs by name, as plain values."""
        ...


@dataclass
class Knobs:
    """Hands out knob values while a schedule is written, and remembers what it declared."""

    chosen: Mapping[str, Any]
    declared: dict[str, Knob] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def choice(self, name: str, *choices: Any, comment: str = "", setting: bool = False) -> Any:
        """Declare a knob where it is used. The first choice is the default. `setting`: see Knob."""
        value = self._given(Knob(name, choices, choices[0], comment, setting=setting))
        text = str(value).casefold()  # of a boolean: true, as fields have it
        match = [choice for choice in choices if choice == value or str(choice).casefold() == text]
        if not match:
            raise ConfigError(
                f"knob {name}={value!r} is not among its choices",
                hint="choices: "
                + ", ".join(str(choice) for choice in choices)
                + (f"; {comment}" if comment else ""),
            )
        if not setting or match[0] != choices[0]:
            self.values[name] = match[0]
        return match[0]

    def number(
        self, name: str, *choices: float, least: float, most: float, comment: str = ""
    ) -> float:
        """Declare a knob that may be any number of a range. The first choice is the default; a
        tuner tries the choices."""
        knob = Knob(name, choices, choices[0], comment, (least, most))
        number = self.values[name] = knob.number(self._given(knob))
        return number

    def _given(self, knob: Knob) -> Any:
        """Declares the knob: the value chosen for it, or its default."""
        if self.declared.setdefault(knob.name, knob) != knob:
            raise ScheduleError(f"knob {knob.name!r} is declared twice with different choices")
        return self.chosen.get(knob.name, knob.default)


def joined(knobs: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of two places. ConfigError for one that they give different values."""
    for name in sorted(knobs.keys() & more.keys()):
        if not _alike(knobs[name], more[name]):
            raise ConfigError(
                f"{name} is given twice: {knobs[name]} and {more[name]}",
                hint=f"give {name} in one place: a config has all of its knobs",
            )
    return {**knobs, **more}


def _alike(value: Any, other: Any) -> bool:
    """Whether two values, or their texts, say the same."""
    try:
        return value == other or float(value) == float(other)
    except (TypeError, ValueError):
        return str(value).casefold() == str(other).casefold()
