"""One call from a schedule's name to an artifact: run it, derive, prove, render, assemble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

from mlagen.artifact import (
    Arg,
    Artifact,
    GridDim,
    Manifest,
    Proof,
    Resources,
    SourceLine,
    sha256,
)
from mlagen.codegen.assemble import assemble, build_flags, tool_versions
from mlagen.codegen.gfx950.flow import check_flow
from mlagen.codegen.gfx950.words import check_words
from mlagen.codegen.layout import build_layout
from mlagen.codegen.lifetimes import check_lifetimes
from mlagen.codegen.listing import cluster_table, code_lines, lds_map
from mlagen.codegen.maps import kernel_map
from mlagen.codegen.pad import pad
from mlagen.codegen.place import place
from mlagen.codegen.program import Layout
from mlagen.codegen.proof import ProofResult, prove, require
from mlagen.codegen.render import Lowering, Templates
from mlagen.codegen.schedules import load
from mlagen.codegen.sm_90a.build import build_pipeline
from mlagen.codegen.waits import derive_waits
from mlagen.dsl import PipelineSchedule, Schedule, ScheduleFunction
from mlagen.errors import CapacityError, ConfigError, TemplateError
from mlagen.targets.gfx950.limits import GFX950

WAIT_SPAN = 3  # loop passes over which waits are derived; the proof covers all N on its own


def build(
    kernel: str | ScheduleFunction,
    problem: Any,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates_dir: str | Path | None = None,
    allow_unproved: bool = False,
) -> Artifact:
    """The artifact of `kernel` (a shipped schedule's name, PATH.py[:NAME], or what `load` returns)
    for `problem`, an instance of the schedule's problem type. `target` picks among a file's
    schedules; without it the file must hold one. Templates are looked up in
    `templates_dir`, then in the schedule's own folder, then among the shipped ones.

    Raises ConfigError for what the schedule does not serve, ScheduleError and its kinds for what
    cannot be generated, ProofError where an access pair is not ordered (with `allow_unproved` the
    artifact is made, and marked), TemplateError and MissingError from the toolchain.
    """
    function, schedule, templates = run_schedule(kernel, problem, target, knobs, templates_dir)
    with function.own_code():  # operations supply their templates' operands while they are rendered
        if isinstance(schedule, PipelineSchedule):
            fields = plain_fields(problem)
            return build_pipeline(
                schedule,
                templates,
                fields,
                _header(schedule, fields),
                allow_unproved=allow_unproved,
            )
        program = generate(schedule, templates, allow_unproved=allow_unproved)
        if not allow_unproved:
            require(program.proof.violations)
        return _artifact(schedule, program, templates, function.target)


def run_schedule(
    kernel: str | ScheduleFunction,
    problem: Any,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates_dir: str | Path | None = None,
) -> tuple[ScheduleFunction, Schedule | PipelineSchedule, Templates]:
    """What `build` begins with: the schedule function, the value that it makes for `problem`, and
    the templates that its operations are rendered from. Raises as `build` does."""
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
    schedule = function.build(problem, knobs or {})
    directory = Path(templates_dir) if templates_dir is not None else None
    return function, schedule, Templates(function.target, directory, function.templates)


class Program:
    """A finished program: final layout, proof, slack of hand-placed waits."""

    def __init__(self, layout: Layout, proof: ProofResult, slack: list[str]) -> None:
        self.layout, self.proof, self.slack = layout, proof, slack


def generate(schedule: Schedule, templates: Templates, *, allow_unproved: bool = False) -> Program:
    """Schedule to proved, padded program. ProofError where words of the kernel are missing or
    misplaced, unless `allow_unproved`; other violations stand in the program's proof."""
    words = check_words(schedule)
    if not allow_unproved:
        require(words)
    check_lifetimes(schedule)
    lowering = Lowering(templates, schedule.registers.physical(), schedule.file)
    layout = build_layout(schedule, lowering, schedule.name)
    span = range(layout.first_looped + WAIT_SPAN * layout.period)
    waits = derive_waits(schedule, layout, span)
    slack = place(schedule, layout, waits)
    proof = prove(schedule, layout)
    flow = words or check_flow(schedule, layout, lowering)
    proof = replace(proof, violations=(*flow, *proof.violations))
    pad(layout)
    return Program(layout, proof, slack)


def _artifact(schedule: Schedule, program: Program, templates: Templates, target: str) -> Artifact:
    text, source = render(schedule, program, templates, target)
    try:
        code = assemble(
            text,
            file_name=f"{schedule.name}.s",
            source_lines={line.asm_line: line for line in source},
            schedule_file=schedule.file,
            target=target,
        )
    except TemplateError as error:
        if "branch size exceeds" not in error.message:
            raise
        raise CapacityError(
            f"{schedule.name}: {len(source)} instructions are more than a branch reaches "
            f"({GFX950.branch_words} words); the loop is unrolled {program.layout.period} times, "
            f"the common period of all slot counts",
            hint="slot counts with a smaller common multiple",
        ) from error
    signature = schedule.signature
    manifest = Manifest(
        kernel=schedule.name,
        symbol=schedule.name,
        target=target,
        family=getattr(schedule.problem, "family", ""),  # a problem need not be of one
        problem_type=type(schedule.problem).__name__,
        problem=plain_fields(schedule.problem),
        schedule_file=schedule.file,
        knobs=dict(schedule.knobs),
        args=tuple(
            Arg(a.name, a.offset, a.size, a.kind, a.access, dtype=a.dtype)
            for a in signature.arguments
        ),
        kernarg_bytes=signature.kernarg_bytes,
        block=signature.block,
        grid=tuple(GridDim(size=size, tile=tile) for size, tile in signature.grid),
        resources=Resources(
            vgprs=schedule.registers.used,
            agprs=0,
            sgprs=schedule.registers.next_scalar,
            lds_bytes=schedule.lds.used,
            scratch_bytes=0,
            vgpr_spills=0,
            sgpr_spills=0,
        ),
        proof=Proof(
            status="unproved" if program.proof.violations else "proved",
            reasons=tuple(violation.text for violation in program.proof.violations),
            checked_tiles=program.proof.tiles,
            pairs=program.proof.pairs,
            slack=tuple(program.slack),
        ),
        tools=tool_versions(target),
        flags=build_flags(target),
        text_sha256=sha256(text),
        code_sha256=sha256(code),
        map=kernel_map(schedule),
        source=tuple(source),
    )
    return Artifact(manifest, code, text)


def render(
    schedule: Schedule, program: Program, templates: Templates, target: str
) -> tuple[str, list[SourceLine]]:
    """The `.s` and the source of each of its instruction lines."""
    lines = code_lines(schedule, program.layout)
    registers, signature = schedule.registers, schedule.signature
    used = registers.used
    context = {
        **_header(schedule, plain_fields(schedule.problem)),
        "symbol": schedule.name,
        "target": target,
        "schedule_file": schedule.file,
        "roles": ", ".join(
            f"{role.name} = waves {role.waves.start}..{role.waves.stop - 1}, "
            f"lags by {role.stagger} barriers"
            for role in schedule.roles.members
        ),
        "clusters": cluster_table(schedule),
        "lds_map": lds_map(schedule),
        "lds_bytes": schedule.lds.used,
        "lds_capacity": schedule.lds.capacity,
        "vgprs": used,
        "vgpr_budget": registers.budget,
        "accum_offset": min(GFX950.arch_vgprs_per_wave, -(-used // 4) * 4),
        "vector_map": list(registers.symbols()),
        "scalar_map": [
            (regs.name, regs.first, regs.count, regs.comment) for regs in registers.scalars.values()
        ],
        "sgprs": registers.next_scalar,
        "kernarg_bytes": signature.kernarg_bytes,
        "threads": signature.block[0] * signature.block[1] * signature.block[2],
        "block": signature.block,
        "arguments": signature.arguments,
        "code": "\n".join(line.text for line in lines),
    }
    rendered = templates.render("kernel.s.j2", context, schedule.file)
    text = "\n".join(line for _, _, line in rendered) + "\n"
    start = text[: text.index(f"\n{schedule.name}:\n") + 1].count("\n") + 2
    source = []
    for number, line in enumerate(lines, start):
        if line.source is not None:
            source.append(_numbered(line.source, number))
    return text, source


def _header(schedule: Schedule | PipelineSchedule, problem: Mapping[str, Any]) -> dict[str, str]:
    """What the first lines of the text say."""
    return {
        "title": schedule.doc.split("\n", 1)[0],
        "version": _version(),
        "problem": _inline(problem),
        "knobs": _inline(schedule.knobs),
    }


def _numbered(line: SourceLine, number: int) -> SourceLine:
    return SourceLine(
        asm_line=number,
        section=line.section,
        cluster=line.cluster,
        role=line.role,
        template=line.template,
        template_line=line.template_line,
        schedule_line=line.schedule_line,
        operation=line.operation,
        needed=line.needed,
    )


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


def _version() -> str:
    from importlib.metadata import version

    return version("mlagen")
