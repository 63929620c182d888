"""What there is: the schedules with their fields and knobs, and the artifacts in the store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlagen import env
from mlagen.artifact import ArtifactStore, Manifest
from mlagen.artifact.files import MANIFEST
from mlagen.codegen.target import schedule_of
from mlagen.errors import BinaryError, MlagenError, OtherVersionError
from mlagen.problem.fields import example_of, told_of

if TYPE_CHECKING:
    from mlagen.dsl import Knob, ScheduleFunction


@dataclass(frozen=True, slots=True)
class Field:
    """A problem field; `default` is "required" where there is none. `legal`: the values that it may
    have; `legal` and `meaning` are empty where the problem's class does not tell them."""

    name: str
    type: str
    default: str
    legal: str
    meaning: str


@dataclass(frozen=True, slots=True)
class KnobEntry:
    """A knob; its first choice is the default. `value`: what it is in the form that was asked for,
    the default where none was given; `span`: any number of it is legal, and `choices` are those
    that a tuner tries; `refused`: choices that this form refuses alone, and why."""

    name: str
    choices: tuple[str, ...]
    comment: str
    value: str
    span: tuple[float, float] | None
    refused: Mapping[str, str]

    @property
    def legal(self) -> str:
        """What it may be, the default first."""
        listed = " | ".join(choice for choice in self.choices if choice not in self.refused)
        return listed + (f" | any of {self.span[0]:g} .. {self.span[1]:g}" if self.span else "")


@dataclass(frozen=True, slots=True)
class VariantEntry:
    """A form of a kernel. `use`: the problems that it is for; `here`: "taken" by the problem and
    the knobs that were asked for, "serves" them too, or "": it does not."""

    name: str
    use: str
    here: str


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A schedule as `mlagen list KERNEL` shows it. `variants`: its forms, if it has several;
    `knobs`: those of the form that the fields `set` and the knobs `knob` ask for; `table`: the file
    that its table stands in."""

    name: str
    target: str
    problem: str
    doc: str
    fields: tuple[Field, ...]
    variants: tuple[VariantEntry, ...]
    knobs: tuple[KnobEntry, ...]
    table: str
    set: Mapping[str, str]
    knob: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Summary:
    """A schedule as one row."""

    name: str
    target: str
    problem: str
    knobs: tuple[str, ...]
    doc: str  # the first sentence


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact of the store as one row. `built`: when, as ISO 8601 in UTC; `bytes`: of its
    files."""

    key: str
    kernel: str
    target: str
    proof: str
    problem: str
    knobs: str
    schedule: str
    built: str
    bytes: int
    directory: str


def summaries() -> list[Summary]:
    """One row for each schedule that ships."""
    from mlagen.codegen.schedules import available
    from mlagen.dsl.function import first_sentence

    return [
        Summary(
            name=info.name,
            target=info.target,
            problem=info.problem_type.__name__,
            knobs=tuple(knob.name for knob in info.knobs),
            doc=first_sentence(info.doc),
        )
        for info in available()
    ]


def describe(
    kernel: str,
    fields: Mapping[str, str] | None = None,
    knobs: Mapping[str, str] | None = None,
    *,
    target: str | None = None,
) -> KernelEntry:
    """Everything about one schedule, by name or file. Which knobs there are and what they may be
    hangs on the problem: `fields` say it and `knobs` some of the knobs, as for a build. Without
    fields it is the problem type's example.

    Raises ConfigError as a build does.
    """
    from mlagen.app.build import written_schedule
    from mlagen.codegen import schedules

    function = schedules.load(kernel, target)
    if not fields:
        example: Any = example_of(function.problem_type)
        fields = {
            field.name: str(getattr(example, field.name))
            for field in dataclasses.fields(function.problem_type)
            if field.default is dataclasses.MISSING
        }
    function, schedule, _ = written_schedule(kernel, fields, knobs or {}, target=target)
    info = schedules.info_of(function, schedule)
    problem = schedule.problem
    given = {**fields, **(knobs or {})}
    chosen = {name: value for name, value in given.items() if name in schedule.declared}
    return KernelEntry(
        name=info.name,
        target=info.target,
        problem=info.problem_type.__name__,
        doc=info.doc.strip(),
        fields=tuple(_field(field) for field in dataclasses.fields(info.problem_type)),
        variants=_variants(function, problem, info.values),
        knobs=tuple(
            KnobEntry(
                knob.name,
                tuple(str(choice) for choice in knob.choices),
                knob.comment,
                str(info.values.get(knob.name, knob.default)),
                knob.span,
                _refused(function, problem, chosen, knob),
            )
            for knob in info.knobs
        ),
        table=info.table,
        set=dict(fields),
        knob=dict(knobs or {}),
    )


@dataclass(frozen=True, slots=True)
class StoreListing:
    """What the store holds. `other_versions`: folders of artifacts that another version of mlagen
    wrote; `damaged`: what is wrong with those that cannot be read."""

    artifacts: tuple[StoredArtifact, ...]
    other_versions: tuple[str, ...]
    damaged: tuple[str, ...]


def _variants(
    function: ScheduleFunction, problem: Any, values: Mapping[str, Any]
) -> tuple[VariantEntry, ...]:
    from mlagen.dsl.variant import KNOB

    return tuple(
        VariantEntry(
            one.name,
            one.use,
            "taken" if one.name == values[KNOB] else "serves" if one.serves(problem) else "",
        )
        for one in function.variants
    )


def _refused(
    function: ScheduleFunction, problem: Any, chosen: Mapping[str, Any], knob: Knob
) -> dict[str, str]:
    """The choices of a knob with which the schedule is none, and why: they do not go with the
    problem, with another knob or with what a kernel may take."""
    found = {}
    for choice in knob.choices:
        if knob.name not in chosen:
            try:
                schedule_of(function, problem, {**chosen, knob.name: choice})
            except MlagenError as error:
                found[str(choice)] = error.message.partition("\n")[0]
    return found


def stored() -> StoreListing:
    """Each artifact in the store."""
    store = ArtifactStore(env.artifacts_dir())
    artifacts, others, damaged = [], [], []
    for key, found in store:
        match found:
            case OtherVersionError():
                others.append(str(store.path(key)))
            case BinaryError():
                damaged.append(found.message)
            case _:
                artifacts.append(_stored(key, found, store.path(key)))
    return StoreListing(tuple(artifacts), tuple(others), tuple(damaged))


def _stored(key: str, manifest: Manifest, directory: Path) -> StoredArtifact:
    files = [path.stat() for path in directory.iterdir()]
    built = datetime.fromtimestamp((directory / MANIFEST).stat().st_mtime, UTC)
    return StoredArtifact(
        key=key,
        kernel=manifest.kernel,
        target=manifest.target,
        proof=manifest.proof.status,
        problem=", ".join(f"{name}={value}" for name, value in manifest.problem.items()),
        knobs=", ".join(f"{name}={value}" for name, value in manifest.knobs.items()),
        schedule=manifest.schedule_file,
        built=built.strftime("%Y-%m-%dT%H:%M:%SZ"),
        bytes=sum(file.st_size for file in files),
        directory=str(directory),
    )


def _field(field: dataclasses.Field[Any]) -> Field:
    kind, default = field.type, field.default
    meaning, legal = told_of(field)
    return Field(
        field.name,
        kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", ""),
        "required" if default is dataclasses.MISSING else str(default),
        legal,
        meaning,
    )
