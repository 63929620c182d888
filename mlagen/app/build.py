"""From named values to an artifact and its callable: what `mlagen.build` does.

Every unknown name is refused with the legal ones and the nearest of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlagen.disk import exists
from mlagen.errors import ConfigError, MissingError, MlagenError
from mlagen.problem.fields import example_of, problem_of

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.codegen.build import WrittenSchedule
    from mlagen.dsl import ScheduleFunction
    from mlagen.launch import Launcher


def build_artifact(
    kernel: str,
    fields: Mapping[str, Any],
    knobs: Mapping[str, Any],
    *,
    target: str | None = None,
    templates: Path | str | None = None,
    allow_unproved: bool = False,
) -> Artifact:
    """Builds `kernel` for the problem that `fields` describe; see `mlagen.build`.

    Values of fields and knobs may be given as their text, as the command line does. A name among
    `fields` that is a knob's is that knob.
    """
    from mlagen.codegen.build import generate

    written = written_schedule(kernel, fields, knobs, target=target, templates=templates)
    return generate(written, allow_unproved=allow_unproved)


def written_schedule(
    kernel: str,
    fields: Mapping[str, Any],
    knobs: Mapping[str, Any],
    *,
    target: str | None = None,
    templates: Path | str | None = None,
) -> WrittenSchedule:
    """The schedule function `kernel`, run once for the problem that `fields` describe and all knobs
    that are given. A name among `fields` that is no field of the problem is a knob's.

    ConfigError for a name that is neither, and for what the problem class or the schedule refuses.
    """
    from mlagen.codegen.build import run_schedule
    from mlagen.codegen.schedules import load, require_target
    from mlagen.dsl.knobs import UnknownKnobError, joined

    function = load(kernel, target)
    require_target(kernel, target, function.target)
    if templates is not None:
        _require_templates(Path(templates), function.target)
    known = {field.name for field in dataclasses.fields(function.problem_type)}
    own = {name: value for name, value in fields.items() if name in known}
    others = {name: value for name, value in fields.items() if name not in known}
    try:
        with function.own_code():
            problem: Any = problem_of(function.problem_type, own)
    except ConfigError:
        _refuse_fields(function, own, _undeclared(function, others))
        raise
    try:
        return run_schedule(function, problem, None, joined(others, knobs), templates)
    except UnknownKnobError as error:
        _refuse_fields(function, own, [name for name in error.names if name not in knobs])
        raise


def knobs_among(written: WrittenSchedule, names: Iterable[str]) -> dict[str, Any]:
    """Those of the names that are knobs of the schedule, with the values that it took; a setting
    that is left at its default is none."""
    knobs = written.schedule.knobs
    return {name: knobs[name] for name in names if name in knobs}


def _undeclared(function: ScheduleFunction, names: Mapping[str, Any]) -> list[str]:
    """Those among the names that are no knobs of the schedule, as its example knows."""
    from mlagen.codegen.target import schedule_of

    try:
        declared = schedule_of(function, example_of(function.problem_type), {}).declared
    except MlagenError:
        return []
    return [name for name in names if name not in declared]


def _refuse_fields(function: ScheduleFunction, own: Mapping[str, Any], names: list[str]) -> None:
    """Raises as the problem class does for these names, if there are any, beside its `own`."""
    if names:
        with function.own_code():
            problem_of(function.problem_type, {**own, **dict.fromkeys(names)})


def check_arguments(
    *, target: object, knobs: object, templates: object, launcher: object, shape: object
) -> None:
    """ConfigError for what `mlagen.build` is given beside fields, where it is of another type; None
    is always one of them."""
    for name, value, legal, what in (
        ("target", target, str, "a name, such as 'gfx950'"),
        ("knobs", knobs, Mapping, 'a mapping of knobs\' names to values, {"slots": 2}'),
        ("templates", templates, str | PathLike, "the path of a folder"),
        ("shape", shape, Mapping, 'a mapping of sizes\' names to numbers, {"batch": 64}'),
    ):
        if value is not None and not isinstance(value, legal):
            raise ConfigError(f"{name}={value!r:.80}: {name} is {what}")
    if launcher is not None and not callable(getattr(launcher, "launch", None)):
        raise ConfigError(
            f"launcher={launcher!r:.80}: it has no method launch",
            hint="mlagen.launch has CudaLauncher, HipLauncher and EmulatedLauncher; "
            "launcher=CudaLauncher(stream=s)",
        )
    if knobs is not None and shape is not None:
        raise ConfigError(
            "shape= says for which calls the best known knobs are taken, and knobs= gives them",
            hint="leave out one of the two",
        )


def build_with_defaults(kernel: str, fields: Mapping[str, Any]) -> Artifact:
    """`build_artifact` without a choice: what calls that launch a second kernel build it by."""
    return build_artifact(kernel, fields, {})


def callable_of(artifact: Artifact, launcher: Launcher | None = None) -> Any:
    """The artifact as its family's callable, which builds what its calls need besides."""
    from mlagen.family import family_of

    return family_of(artifact).kernel(artifact, launcher, build_with_defaults)


def _require_templates(folder: Path, target: str) -> None:
    from mlagen.codegen.target import target_of

    if not exists(folder) or not folder.is_dir():
        raise MissingError(f"no template folder {folder}")
    if not any(any((folder / name).rglob("*.j2")) for name in target_of(target).template_folders):
        raise MissingError(
            f"the template folder {folder} has no template for {target}, so nothing would change",
            hint=f"a template lies at {folder / target}/… under the name it replaces",
        )


def keep(artifact: Artifact, directory: Path | str | None, *, force: bool = False) -> Path:
    """Writes the artifact into `directory`, or into the store when there is none. `force`: over
    files that mlagen did not make, too."""
    from mlagen import env
    from mlagen.artifact import ArtifactStore, write_artifact

    if directory is not None:
        return write_artifact(artifact, directory, force=force)
    return ArtifactStore(env.artifacts_dir()).put(artifact)
