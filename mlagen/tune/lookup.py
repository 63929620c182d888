"""Which knobs a launch takes: this machine's winner, else a shipped one, else the defaults.

A winner is used only where building it gives the very text that was judged: after a change of the
kernel nobody has verified that variant.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mlagen import env
from mlagen.errors import ConfigError, MlagenError
from mlagen.family import family_named
from mlagen.tune.space import Value, differing
from mlagen.tune.store import Store
from mlagen.tune.tuned_file import Winner, shipped, winner_of

if TYPE_CHECKING:
    from mlagen.artifact import Artifact

Origin = Literal["local", "shipped", "default"]
_LOG = logging.getLogger("mlagen.tune")


@dataclass(frozen=True, slots=True)
class Choice:
    """The knobs of a launch and where they are from. `passed_over`: winners that were not taken,
    and why."""

    origin: Origin
    knobs: Mapping[str, Value]
    told: str
    passed_over: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((self.told, *self.passed_over))


@dataclass(frozen=True, slots=True)
class FoundWinner:
    """A winner that may serve."""

    origin: Origin
    entry: Winner

    @property
    def told(self) -> str:
        question, entry = self.entry.question, self.entry
        gain = f", {entry.gain:.3f}x of the default" if entry.gain else ""
        whose = "this machine's winner" if self.origin == "local" else "the shipped winner"
        what = differing(entry.knobs, entry.reference)
        return f"{whose} of {question.title}{gain}: {what}"


def candidates(
    name: str,
    target: str,
    problem: Mapping[str, Any],
    shape: Mapping[str, Any] | None,
    notes: list[str],
) -> Iterator[FoundWinner]:
    """Winners of a problem, the best suited first: local before shipped, measured before predicted,
    near shapes before far ones (without a shape: large ones first)."""

    def fits(entry: Winner) -> bool:
        question = entry.question
        same = (question.name, question.target, question.call) == (name, target, "")
        return same and question.problem == dict(problem)

    for origin, entries in (("local", _local(notes)), ("shipped", _shipped(notes))):
        suited = [entry for entry in entries if fits(entry)]
        suited.sort(key=lambda e: (e.question.cost != "measured", _far(e.question.shape, shape)))
        for entry in suited:
            yield FoundWinner("local" if origin == "local" else "shipped", entry)


def _local(notes: list[str]) -> list[Winner]:
    path = env.tuning_store()
    if not path.is_file():
        return []
    try:
        store = Store(path)
        try:
            return [entry for s in store.studies() if (entry := winner_of(store, s)) is not None]
        finally:
            notes += store.skipped
            store.close()
    except MlagenError as error:  # a launch needs no store
        notes.append(error.message)
        return []


def _shipped(notes: list[str]) -> tuple[Winner, ...]:
    try:
        return shipped()
    except (MlagenError, OSError) as error:
        notes.append(f"shipped winners: {error}")
        return ()


def _far(of: Mapping[str, Any], shape: Mapping[str, Any] | None) -> float:
    if shape is None:
        return -math.prod(_size(value) for value in of.values())
    names = of.keys() | shape.keys()
    both = of.keys() & shape.keys()
    apart = sum(abs(math.log2(_size(of[name]) / _size(shape[name]))) for name in both)
    return apart + len(names - both)


def _size(value: Any) -> float:
    numbers = value if isinstance(value, list | tuple) else [value]
    return max(1.0, sum(float(number) for number in numbers) / max(len(numbers), 1))


def build_best(
    kernel: str,
    fields: Mapping[str, Any],
    *,
    target: str | None = None,
    templates: Path | str | None = None,
    shape: Mapping[str, Any] | None = None,
) -> tuple[Artifact, Choice]:
    """Builds `kernel` with the best knobs that are known for its problem, and says whose they are.

    `shape`: sizes of the calls it is for; without it winners of large calls are preferred. Raises
    what building with default knobs raises.
    """
    from mlagen.app.build import build_artifact, knobs_among, written_schedule
    from mlagen.codegen.build import generate
    from mlagen.codegen.manifest import plain_fields

    written = written_schedule(kernel, fields, {}, target=target, templates=templates)
    schedule, problem = written.function, written.schedule.problem
    given = knobs_among(written, fields)
    if shape is not None:
        _check_shape(problem, shape)
    notes: list[str] = []
    for found in candidates(schedule.name, schedule.target, plain_fields(problem), shape, notes):
        if any(str(found.entry.knobs.get(name)) != str(value) for name, value in given.items()):
            continue
        try:
            artifact = build_artifact(kernel, fields, found.entry.knobs, target=target,
                                      templates=templates)  # fmt: skip
        except MlagenError as error:
            notes.append(f"not {found.told}: {error.message}")
            continue
        if artifact.manifest.text_sha256 == found.entry.text:
            return artifact, _said(Choice(found.origin, found.entry.knobs, found.told,
                                          tuple(notes)))  # fmt: skip
        notes.append(f"not {found.told}: the kernel has changed since it was judged")
    artifact = generate(written)
    told = " beside ".join(["the schedule's defaults", *([differing(given, {})] if given else [])])
    return artifact, _said(Choice("default", artifact.manifest.knobs, told, tuple(notes)))


def _check_shape(problem: Any, shape: Mapping[str, Any]) -> None:
    """ConfigError for a size that no call of the problem has, or that is no number. Sizes are those
    that winners are kept by: of predicted calls and of measured ones."""
    from mlagen.app.build import build_with_defaults
    from mlagen.legal_names import require_name
    from mlagen.problem.fields import integer

    family, name = family_named(getattr(problem, "family", "")), type(problem).__name__
    if family is None:
        raise ConfigError(f"nothing is tuned for a {name}, so no shape= says more of its calls")
    workloads = family.workloads(name, build_with_defaults)
    legal = {*family.kind(name).sizes, *(workloads.sizes if workloads is not None else ())}
    for name, size in shape.items():
        require_name("size", name, legal)
        for number in size if isinstance(size, list | tuple) else (size,):
            if integer(name, number) < 0:
                raise ConfigError(f"{name}={size!r} is below 0")


def _said(choice: Choice) -> Choice:
    _LOG.info("%s", choice)
    return choice
