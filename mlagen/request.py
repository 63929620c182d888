"""What a user asks for, checked and built.

Every unknown name is refused with the legal ones and the nearest of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlagen.codegen.target import schedule_of
from mlagen.disk import exists
from mlagen.errors import ConfigError, MissingError
from mlagen.problem.fields import example_of, problem_of

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.dsl import ScheduleFunction
    from mlagen.launch import Launcher
    from mlagen.schedule_view import ScheduleView
    from mlagen.verify import ThoroughReport, VerifyReport


def require_name(what: str, name: object, legal: Iterable[str]) -> None:
    """Raises ConfigError unless `name` is among `legal`; the hint names the nearest."""
    names = sorted(legal)
    if name in names:
        return
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    nearest = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(names) or "none"
    raise ConfigError(f"unknown {what} {name!r}", hint=f"{nearest}{what}s: {listed}")


def require_target(kernel: str, asked: str | None, has: str) -> None:
    """Raises ConfigError unless a kernel that `has` a target is asked for that one, or for any."""
    from mlagen.targets.registry import FOLDERS

    if asked is None or asked == has:
        return
    require_name("target", asked, FOLDERS)
    raise ConfigError(f"{kernel} is for {has}, not for {asked}", hint="leave the target out")


def assignments(option: str, items: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts of one option, as a mapping. A name given twice is refused."""
    given: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ConfigError(f"{option} {item!r} is not NAME=VALUE")
        if name.strip() in given:
            raise ConfigError(f"{option} {name.strip()} is given twice")
        given[name.strip()] = value.strip()
    return given


def parse_sizes(
    shapes: Iterable[str],
    legal: Collection[str] | None = None,
    lists: Collection[str] | None = None,
) -> dict[str, Any]:
    """`NAME=SIZE` texts of --shape as sizes; those among `lists` may be several, with commas
    between. None: any name; any size may be several."""
    found: dict[str, Any] = {}
    for name, text in assignments("--shape", shapes).items():
        if legal is not None:
            require_name("size", name, legal)
        listed = lists is None or name in lists
        try:
            several = "," in text and listed
            found[name] = [int(part) for part in text.split(",")] if several else int(text)
        except ValueError:
            what = "an integer, nor several with commas between" if listed else "an integer"
            raise ConfigError(f"--shape {name}={text!r} is not {what}") from None
    return found


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
    from mlagen.codegen import build

    schedule, problem, chosen = checked(kernel, fields, knobs, target=target, templates=templates)
    return build(
        schedule,
        problem,
        target=schedule.target,
        knobs=chosen,
        templates_dir=templates,
        allow_unproved=allow_unproved,
    )


def checked(
    kernel: str,
    fields: Mapping[str, Any],
    knobs: Mapping[str, Any],
    *,
    target: str | None = None,
    templates: Path | str | None = None,
) -> tuple[ScheduleFunction, Any, dict[str, Any]]:
    """The schedule function `kernel`, the problem that `fields` describe and all knobs that are
    given, where all names that are asked for exist."""
    from mlagen.codegen.schedules import load
    from mlagen.dsl.knobs import joined

    schedule = load(kernel, target)
    require_target(kernel, target, schedule.target)
    problem, among = problem_and_knobs(schedule, fields)
    chosen = joined(among, knobs)
    if knobs:  # a schedule declares its knobs while it runs, and which ones may hang on the problem
        declared = _declared(schedule, problem, chosen)
        for name in knobs:
            require_name("knob", name, declared)
    if templates is not None:
        _require_templates(Path(templates), schedule.target)
    return schedule, problem, chosen


def _declared(
    schedule: ScheduleFunction, problem: Any, chosen: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The knobs that the schedule declares, those among them that one of the `chosen` brings."""
    known: dict[str, Any] = {}
    while True:
        declared: Mapping[str, Any] = schedule_of(schedule, problem, known).declared
        more = {name: value for name, value in chosen.items() if name in declared}
        if more.keys() == known.keys() or more.keys() == chosen.keys():
            return declared
        known = more


def problem_and_knobs(
    schedule: ScheduleFunction, fields: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The problem that `fields` describe, and those of them that are the schedule's knobs instead.

    ConfigError for a name that is neither, and for what the problem class refuses.
    """
    problem_type: Any = schedule.problem_type
    known = {field.name for field in dataclasses.fields(problem_type)}
    others = {name: value for name, value in fields.items() if name not in known}
    with schedule.own_code():
        if others:
            declared = schedule_of(schedule, example_of(problem_type), {}).declared
            others = {name: value for name, value in others.items() if name in declared}
        own = {name: value for name, value in fields.items() if name not in others}
        problem = problem_of(problem_type, own)
        chosen = schedule_of(schedule, problem, others).knobs if others else {}
        return problem, {name: chosen[name] for name in others}


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


@dataclass(frozen=True)
class BuildTexts:
    """What a command line says of a build: `FIELD=VALUE` and `NAME=VALUE` texts, and where from."""

    fields: Sequence[str] = ()
    knobs: Sequence[str] = ()
    target: str | None = None
    templates: str | None = None
    allow_unproved: bool = False


def build_from_text(kernel: str, texts: BuildTexts) -> Artifact:
    """`build_artifact` for the command line's texts."""
    return build_artifact(
        kernel,
        assignments("--set", texts.fields),
        assignments("--knob", texts.knobs),
        target=texts.target,
        templates=texts.templates,
        allow_unproved=texts.allow_unproved,
    )


def names_schedule(subject: str) -> bool:
    """Whether a command's subject is a schedule: `PATH.py`, `PATH.py:NAME`, or the name of one
    where nothing lies."""
    if re.search(r"\.py(:\w+)?$", subject):
        return True
    return re.fullmatch(r"\w+", subject) is not None and not exists(subject)


def view_from_text(kernel: str, texts: BuildTexts) -> ScheduleView:
    """`mlagen.schedule_view.view_schedule` for the command line's texts, checked as for a build."""
    from mlagen.schedule_view import view_schedule

    function, problem, chosen = checked(
        kernel,
        assignments("--set", texts.fields),
        assignments("--knob", texts.knobs),
        target=texts.target,
        templates=texts.templates,
    )
    return view_schedule(function, problem, chosen, texts.templates)


def keep(artifact: Artifact, directory: Path | str | None, *, force: bool = False) -> Path:
    """Writes the artifact into `directory`, or into the store when there is none. `force`: over
    files that mlagen did not make, too."""
    from mlagen import env
    from mlagen.artifact import ArtifactStore, write_artifact

    if directory is not None:
        return write_artifact(artifact, directory, force=force)
    return ArtifactStore(env.artifacts_dir()).put(artifact)


def artifact_of(kernel: str, texts: BuildTexts) -> Artifact:
    """The artifact in the directory `kernel`, or the one that building `kernel` makes.

    A finished artifact takes no fields, knobs or templates: giving them is refused.
    """
    from mlagen.artifact import read_artifact

    path = Path(kernel)
    if path.suffix == ".py" or not exists(path):
        return build_from_text(kernel, texts)
    for option, given in (
        ("--set", texts.fields),
        ("--knob", texts.knobs),
        ("--templates", texts.templates),
    ):
        if given:
            raise ConfigError(
                f"{option} is for building; {kernel} is built already",
                hint="name the kernel instead of its artifact",
            )
    artifact = read_artifact(path)
    require_target(kernel, texts.target, artifact.manifest.target)
    return artifact


def verify_from_text(
    artifact: Artifact,
    shapes: Iterable[str],
    *,
    data: str | None,
    seed: int,
    modes: Iterable[str],
    sample: int | None = None,
    problem_file: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport | ThoroughReport:
    """`mlagen.verify.verify` for the command line's `NAME=SIZE` texts; a size that the problem's
    kind takes for each sequence may be several, `300,0,1`. Without shapes, data and sample,
    `verify_thoroughly`. `problem_file`: the schedule file that brings the artifact's kind of
    problem, where it is none of the shipped ones."""
    from mlagen.verify import kind_of, verify, verify_thoroughly
    from mlagen.verify.run import DATA

    if problem_file is not None:
        from mlagen.codegen.schedules import load

        load(problem_file, artifact.manifest.target)
    kind = kind_of(artifact)
    sizes = parse_sizes(shapes, kind.sizes, kind.lists)
    unique: list[Any] = list(dict.fromkeys(modes))
    if not sizes and data is None and sample is None:
        return verify_thoroughly(artifact, seed=seed, modes=unique, progress=progress)
    shape: dict[str, Any] = {**sizes, "sample": sample}
    return verify(artifact, **shape, data=data or DATA, seed=seed, modes=unique, progress=progress)
