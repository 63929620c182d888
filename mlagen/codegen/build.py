"""One call from a schedule's name to an artifact, by the code generation of its target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mlagen.artifact import Artifact
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, target_of, templates_for
from mlagen.codegen.templates import Templates
from mlagen.dsl.function import ScheduleBase, ScheduleFunction
from mlagen.errors import ConfigError


def build(
    kernel: str | ScheduleFunction,
    problem: Any,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates_dir: str | Path | None = None,
    allow_unproved: bool = False,
) -> Artifact:
    """The artifact of `kernel` (a shipped schedule's name, PATH.py[:NAME], or what `load` returns)
    for `problem`, an instance of the schedule's problem type, or a config of it: a problem and
    knobs, of which `knobs` must not say something else. `target` picks among a file's
    schedules; without it the file must hold one. Templates are looked up in
    `templates_dir`, then in the schedule's own folder, then among the shipped ones.

    Raises ConfigError for what the schedule does not serve, ScheduleError and its kinds for what
    cannot be generated, ProofError where an access pair is not ordered (with `allow_unproved` the
    artifact is made, and marked), TemplateError and MissingError from the toolchain.
    """
    written = run_schedule(kernel, problem, target, knobs, templates_dir)
    return generate(written, allow_unproved=allow_unproved)


class WrittenSchedule(NamedTuple):
    """A schedule function that has run: the value that it made, and the templates that its
    operations are rendered from."""

    function: ScheduleFunction
    schedule: ScheduleBase
    templates: Templates


def generate(written: WrittenSchedule, *, allow_unproved: bool = False) -> Artifact:
    """The artifact of a schedule that has run. Raises as `build` does."""
    function, schedule, templates = written
    with function.own_code():  # operations supply their templates' operands while they are rendered
        return target_of(function.target).build(schedule, templates, allow_unproved=allow_unproved)


def run_schedule(
    kernel: str | ScheduleFunction,
    problem: Any,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates_dir: str | Path | None = None,
) -> WrittenSchedule:
    """What `build` begins with: the schedule function runs once. Raises as `build` does."""
    function = load(kernel, target) if isinstance(kernel, str) else kernel
    if target not in (None, function.target):
        raise ConfigError(
            f"{function.name} is a schedule for {function.target}, not for {target}",
            hint=f"targets of {function.name}: {function.target}",
        )
    if not isinstance(problem, function.problem_type):
        raise ConfigError(
            f"{function.name} solves a {function.problem_type.__name__}, "
            f"not a {type(problem).__name__}"
        )
    schedule = schedule_of(function, problem, knobs or {})
    directory = Path(templates_dir) if templates_dir is not None else None
    templates = templates_for(function.target, directory, function.templates)
    return WrittenSchedule(function, schedule, templates)
