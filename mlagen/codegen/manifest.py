"""The artifact of generated code: what every target's manifest says alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib.metadata import version
from typing import Any

from mlagen.artifact import (
    Arg,
    Artifact,
    GridDim,
    KernelMap,
    Manifest,
    Proof,
    Resources,
    Rounding,
    SourceLine,
    TensorMapSpec,
    sha256,
)
from mlagen.artifact.manifest import Status
from mlagen.dsl import KernelArgument
from mlagen.dsl.function import ScheduleBase, first_sentence


@dataclass(frozen=True)
class Made:
    """What a target made of a schedule. `symbol`: of the kernel in `code`; `source`: of the text's
    lines; `versions`: of the tools that assembled it."""

    symbol: str
    text: str
    code: bytes
    resources: Resources
    proof: Proof
    map: KernelMap
    source: Sequence[SourceLine]
    versions: Mapping[str, str]
    flags: tuple[str, ...]


def status_of(violated: bool, *, compared: bool) -> Status:
    """`violated`: something was found. `compared`: with a plain loop that the kernel declares."""
    return "unproved" if violated else "proved" if compared else "ordered"


def artifact_of(schedule: ScheduleBase, made: Made) -> Artifact:
    """The artifact with its manifest."""
    signature = schedule.signature
    manifest = Manifest(
        kernel=schedule.name,
        symbol=made.symbol,
        target=schedule.target.name,
        family=getattr(schedule.problem, "family", ""),  # a problem need not be of one
        problem_type=type(schedule.problem).__name__,
        problem=plain_fields(schedule.problem),
        schedule_file=schedule.file,
        knobs=dict(schedule.knobs),
        args=tuple(_argument(argument) for argument in signature.arguments),
        kernarg_bytes=signature.kernarg_bytes,
        block=signature.block,
        grid=tuple(
            GridDim(size=size, tile=tile, clusters=signature.clusters if not axis else 1)
            for axis, (size, tile) in enumerate(signature.grid)
        ),
        resources=made.resources,
        proof=made.proof,
        tools={"mlagen": version("mlagen"), **made.versions},
        flags=made.flags,
        text_sha256=sha256(made.text),
        code_sha256=sha256(made.code),
        map=made.map,
        source=tuple(made.source),
        dependent=signature.dependent,
        numerics=_roundings(schedule),
        facts=plain_facts(schedule.facts),
    )
    return Artifact(manifest, made.code, made.text)


def _roundings(schedule: ScheduleBase) -> tuple[Rounding, ...]:
    """What the kernel rounds, where its problem says so: a family's does."""
    says = getattr(schedule.problem, "roundings", None)
    return tuple(says(schedule.facts)) if says else ()


def plain_facts(facts: Any) -> dict[str, Any]:
    """A variant's facts as JSON values, but those that are as they usually are."""
    if facts is None:
        return {}
    found = {field.name: getattr(facts, field.name) for field in fields(facts)
             if getattr(facts, field.name) != field.default}  # fmt: skip
    return {
        name: plain_facts(value) if is_dataclass(value)
        else list(value) if isinstance(value, tuple) else value
        for name, value in found.items()
    }  # fmt: skip


def header(schedule: ScheduleBase) -> dict[str, str]:
    """What the first lines of every text say."""
    return {
        "title": first_sentence(schedule.doc),
        "version": version("mlagen"),
        "target": schedule.target.name,
        "schedule_file": schedule.file,
        "problem": _inline(plain_fields(schedule.problem)),
        "knobs": _inline(schedule.knobs),
    }


def plain_fields(problem: Any) -> dict[str, Any]:
    """A problem's fields as JSON values; values of its own types by their text."""
    fields = asdict(problem) if is_dataclass(problem) and not isinstance(problem, type) else {}
    return {
        name: getattr(problem, name)
        if isinstance(getattr(problem, name), int | float | str | bool | None)
        else str(getattr(problem, name))
        for name in fields
    }


def _inline(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _argument(argument: KernelArgument) -> Arg:
    fields = {name: getattr(argument, name) for name in Arg.__struct_fields__}
    if argument.tensor_map is not None:
        fields["tensor_map"] = TensorMapSpec(**asdict(argument.tensor_map))
    return Arg(**fields)
