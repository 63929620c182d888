"""Knobs: the choices that a schedule declares and a tuner makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlagen.errors import ConfigError, ScheduleError


@dataclass(frozen=True, slots=True)
class Knob:
    """A tunable choice of a schedule; the tuner's space is the product of all of them."""

    name: str
    choices: tuple[Any, ...]
    default: Any
    comment: str


@dataclass
class Knobs:
    """Hands out knob values while a schedule is written, and remembers what it declared."""

    chosen: Mapping[str, Any]
    declared: dict[str, Knob] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def choice(self, name: str, *choices: Any, comment: str = "") -> Any:
        """Declare a knob where it is used. The first choice is the default."""
        knob = Knob(name, choices, choices[0], comment)
        if self.declared.setdefault(name, knob) != knob:
            raise ScheduleError(f"knob {name!r} is declared twice with different choices")
        value = self.chosen.get(name, knob.default)
        match = [choice for choice in choices if choice == value or str(choice) == str(value)]
        if not match:
            raise ConfigError(
                f"knob {name}={value!r} is not among its choices",
                hint="choices: "
                + ", ".join(str(choice) for choice in choices)
                + (f"; {comment}" if comment else ""),
            )
        self.values[name] = match[0]
        return match[0]
