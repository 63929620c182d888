"""What there is: the schedules with their fields and knobs, and the artifacts in the store."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlagen import env
from mlagen.artifact import ArtifactStore, Manifest
from mlagen.artifact.files import MANIFEST
from mlagen.errors import BinaryError, OtherVersionError
from mlagen.problem.fields import told_of


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
    """A knob; its first choice is the default."""

    name: str
    choices: tuple[str, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A schedule as `mlagen list KERNEL` shows it."""

    name: str
    target: str
    problem: str
    doc: str
    fields: tuple[Field, ...]
    knobs: tuple[KnobEntry, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A schedule as one row."""

    name: str
    target: str
    problem: str
    knobs: tuple[str, ...]
    doc: str  # the first line


@dataclass(frozen=True, slots=True)
class Stored:
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

    return [
        Summary(
            name=info.name,
            target=info.target,
            problem=info.problem_type.__name__,
            knobs=tuple(knob.name for knob in info.knobs),
            doc=info.doc.strip().split("\n", 1)[0],
        )
        for info in available()
    ]


def describe(kernel: str) -> Kernel:
    """Everything about one schedule, by name or file."""
    from mlagen.codegen import schedules

    info = schedules.describe(schedules.load(kernel))
    return Kernel(
        name=info.name,
        target=info.target,
        problem=info.problem_type.__name__,
        doc=info.doc.strip(),
        fields=tuple(_field(field) for field in dataclasses.fields(info.problem_type)),
        knobs=tuple(
            KnobEntry(knob.name, tuple(str(choice) for choice in knob.choices), knob.comment)
            for knob in info.knobs
        ),
    )


@dataclass(frozen=True, slots=True)
class Store:
    """What the store holds. `other_versions`: folders of artifacts that another version of mlagen
    wrote; `damaged`: what is wrong with those that cannot be read."""

    artifacts: tuple[Stored, ...]
    other_versions: tuple[str, ...]
    damaged: tuple[str, ...]


def stored() -> Store:
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
    return Store(tuple(artifacts), tuple(others), tuple(damaged))


def _stored(key: str, manifest: Manifest, directory: Path) -> Stored:
    files = [path.stat() for path in directory.iterdir()]
    built = datetime.fromtimestamp((directory / MANIFEST).stat().st_mtime, UTC)
    return Stored(
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
