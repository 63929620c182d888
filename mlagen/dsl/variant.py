"""Variants: the forms of one kernel, as values in its schedule's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagen.dsl.knobs import Knobs
from mlagen.errors import ConfigError, ScheduleError

KNOB = "variant"


def always(*given: Any) -> bool:
    """Of a variant that serves every problem of its kernel."""
    return True


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of a kernel. `name`: what `--knob variant=` and the manifest call it; `use`: the
    problems that it is for, in words; `table`: writes its schedule, `table(problem, space)`;
    `facts`: what hosts, planners and oracles need to know of the kernel, a dataclass of its family,
    `facts(problem, knobs)` after all knobs are declared; `serves(problem)`: whether it is for it;
    `usual(problem, knobs)`: whether it may be what is built unless the knob says another, with the
    knobs that were asked for, whose values may be text."""

    name: str
    use: str
    table: Callable[..., None]
    facts: Callable[[Any, Mapping[str, Any]], Any]
    serves: Callable[[Any], bool] = always
    usual: Callable[[Any, Mapping[str, Any]], bool] = always


def serving(variants: Sequence[Variant], problem: Any, knobs: Mapping[str, Any]) -> list[Variant]:
    """Those that serve a problem, the one first that is built with these knobs unless one of them
    names another."""
    fit = [one for one in variants if one.serves(problem)]
    return sorted(fit, key=lambda one: not one.usual(problem, knobs))


def taken(variants: Sequence[Variant], problem: Any, knobs: Knobs) -> Variant:
    """Declares the knob: the variant that it names, or the usual one of the problem.

    ConfigError: none serves the problem, or not the one that was asked for."""
    names = [one.name for one in variants]
    if len(set(names)) < len(names):
        raise ScheduleError(f"two variants have one name: {', '.join(names)}")
    fit, asked = serving(variants, problem, knobs.chosen), knobs.chosen.get(KNOB)
    if not fit or (asked in names and asked not in [one.name for one in fit]):
        raise ConfigError(
            f"variant={asked} does not serve this problem" if asked else "no variant serves it",
            hint="; ".join(f"{one.name}: {one.use}" for one in fit or variants),
        )
    name = knobs.choice(KNOB, *(one.name for one in fit), comment="form of the kernel")
    return next(one for one in fit if one.name == name)
