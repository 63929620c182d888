"""What a command line says of a kernel and its calls: texts, parsed and acted upon."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlagen.app.build import build_artifact, written_schedule
from mlagen.disk import exists
from mlagen.errors import ConfigError
from mlagen.legal_names import require_name

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.schedule_view import ScheduleView
    from mlagen.verify import ThoroughReport, VerifyReport


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

    written = written_schedule(
        kernel,
        assignments("--set", texts.fields),
        assignments("--knob", texts.knobs),
        target=texts.target,
        templates=texts.templates,
    )
    return view_schedule(written)


def artifact_of(kernel: str, texts: BuildTexts) -> Artifact:
    """The artifact in the directory `kernel`, or the one that building `kernel` makes.

    A finished artifact takes no fields, knobs or templates: giving them is refused.
    """
    from mlagen.artifact import read_artifact
    from mlagen.codegen.schedules import require_target

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
