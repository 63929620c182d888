"""From a schedule to an artifact: derive waits, prove, render, assemble."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import msgspec

from mlagen.artifact import Artifact, Proof, Resources, SourceLine
from mlagen.codegen.manifest import Made, artifact_of, header, status_of
from mlagen.codegen.templates import Templates
from mlagen.errors import CapacityError, TemplateError
from mlagen.targets.gfx950.assemble import assemble, build_flags
from mlagen.targets.gfx950.clang import find_tools
from mlagen.targets.gfx950.codegen.agree import check_object
from mlagen.targets.gfx950.codegen.agree_descriptor import check_descriptor
from mlagen.targets.gfx950.codegen.code_layout import build_layout
from mlagen.targets.gfx950.codegen.completeness import check_words
from mlagen.targets.gfx950.codegen.exchanges import exchanged
from mlagen.targets.gfx950.codegen.flow import check_flow
from mlagen.targets.gfx950.codegen.lifetimes import check_lifetimes
from mlagen.targets.gfx950.codegen.listing import cluster_table, code_lines, lds_map
from mlagen.targets.gfx950.codegen.lowering import Lowering
from mlagen.targets.gfx950.codegen.map import kernel_map
from mlagen.targets.gfx950.codegen.pad import pad
from mlagen.targets.gfx950.codegen.place import place
from mlagen.targets.gfx950.codegen.program import Layout
from mlagen.targets.gfx950.codegen.proof import ProofResult, prove, require
from mlagen.targets.gfx950.codegen.waits import derive_waits
from mlagen.targets.gfx950.dsl import Schedule
from mlagen.targets.gfx950.limits import GFX950

WAIT_SPAN = 3  # loop passes over which waits are derived; the proof covers all N on its own


def build(schedule: Schedule, templates: Templates, *, allow_unproved: bool = False) -> Artifact:
    """The artifact of a schedule; see `mlagen.codegen.build`."""
    try:
        return _built(schedule, templates, allow_unproved=allow_unproved)
    except FarBranchError:
        # Twice as much code is in reach of an epilogue in its middle.
        return _built(schedule, templates, allow_unproved=allow_unproved, end_between=True)


def _built(
    schedule: Schedule, templates: Templates, *, allow_unproved: bool, end_between: bool = False
) -> Artifact:
    program = generate(schedule, templates, allow_unproved=allow_unproved, end_between=end_between)
    if not allow_unproved:
        require(program.proof.violations)
    return _artifact(schedule, program, templates)


class FarBranchError(CapacityError):
    """A branch does not reach its label."""


class FinishedProgram:
    """A finished program: final layout, proof, slack of hand-placed waits."""

    def __init__(self, layout: Layout, proof: ProofResult, slack: list[str]) -> None:
        self.layout, self.proof, self.slack = layout, proof, slack


def generate(
    schedule: Schedule,
    templates: Templates,
    *,
    allow_unproved: bool = False,
    end_between: bool = False,
) -> FinishedProgram:
    """Schedule to proved, padded program. ProofError where words of the kernel are missing or
    misplaced, unless `allow_unproved`; other violations stand in the program's proof."""
    words = check_words(schedule)
    if not allow_unproved:
        require(words)
    exchanges = exchanged(schedule)
    check_lifetimes(schedule)
    lowering = Lowering(templates, schedule.registers, schedule.file, exchanges)
    layout = build_layout(schedule, lowering, schedule.name, end_between=end_between)
    span = range(layout.first_looped + WAIT_SPAN * layout.period)
    waits = derive_waits(schedule, layout, span)
    slack = place(schedule, layout, waits)
    proof = prove(schedule, layout)
    flow = words or check_flow(schedule, layout, lowering)
    proof = replace(proof, violations=(*flow, *proof.violations))
    pad(layout)
    return FinishedProgram(layout, proof, slack)


def _artifact(schedule: Schedule, program: FinishedProgram, templates: Templates) -> Artifact:
    text, source = render(schedule, program, templates)
    target = schedule.target.name
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
        raise FarBranchError(
            f"{schedule.name}: {len(source)} instructions are more than a branch reaches "
            f"({GFX950.branch_words} words); the loop is unrolled {program.layout.period} times, "
            f"the common period of all slot counts",
            hint="slot counts with a smaller common multiple",
        ) from error
    check_object(code, chain.from_iterable(program.layout.runs()), schedule.file)
    check_descriptor(code, schedule)
    made = Made(
        symbol=schedule.name,
        text=text,
        code=code,
        resources=Resources(
            vgprs=schedule.registers.vectors,
            agprs=schedule.registers.accumulators,
            sgprs=schedule.registers.next_scalar,
            lds_bytes=schedule.lds.used,
            scratch_bytes=0,
            vgpr_spills=0,
            sgpr_spills=0,
        ),
        proof=proof_of(schedule, program),
        map=kernel_map(schedule),
        source=source,
        versions=dict(find_tools(target).versions),
        flags=build_flags(target),
    )
    return artifact_of(schedule, made)


def proof_of(schedule: Schedule, program: FinishedProgram) -> Proof:
    """What is shown of a program, as manifests say it."""
    proof = program.proof
    return Proof(
        status=status_of(bool(proof.violations), compared=schedule.plain is not None),
        reasons=tuple(violation.text for violation in proof.violations),
        checked_tiles=proof.tiles,
        pairs=proof.pairs,
        slack=tuple(program.slack),
    )


def render(
    schedule: Schedule, program: FinishedProgram, templates: Templates
) -> tuple[str, list[SourceLine]]:
    """The `.s` and the source of each of its instruction lines."""
    lines = code_lines(schedule, program.layout)
    registers, signature = schedule.registers, schedule.signature
    context = {
        **header(schedule),
        "symbol": schedule.name,
        "roles": ", ".join(
            f"{role.name} = waves {role.waves.start}..{role.waves.stop - 1}, "
            f"lags by {role.stagger} barriers"
            for role in schedule.roles.members
        ),
        "clusters": cluster_table(schedule),
        "lds_map": lds_map(schedule),
        "lds_bytes": schedule.lds.used,
        "lds_capacity": schedule.lds.capacity,
        "vgprs": registers.used,
        "agprs": registers.accumulators,
        "vgpr_budget": registers.budget,
        "accum_offset": registers.accum_offset,
        "vector_map": [
            (symbol, regs.file, first, len(regs), comment)
            for symbol, regs, first, comment in registers.symbols()
        ],
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
    source = [
        msgspec.structs.replace(line.source, asm_line=number)
        for number, line in enumerate(lines, start)
        if line.source is not None
    ]
    return text, source
