"""A pipeline schedule to an artifact: derive, prove, render, assemble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlagen.artifact import (
    Arg,
    Artifact,
    GridDim,
    Manifest,
    Proof,
    Resources,
    TensorMapSpec,
    sha256,
)
from mlagen.codegen.maps import pipeline_map
from mlagen.codegen.ptxas import assemble_ptx, ptxas_flags, ptxas_versions
from mlagen.codegen.render import Templates
from mlagen.codegen.sm_90a.derive import check_pipelines
from mlagen.codegen.sm_90a.emit import Emitter
from mlagen.codegen.sm_90a.flow import check_flow
from mlagen.codegen.sm_90a.proof import PipelineProof
from mlagen.codegen.sm_90a.text import print_streams, render_pipeline
from mlagen.codegen.sm_90a.thin import plan
from mlagen.codegen.sm_90a.words import check_words
from mlagen.dsl.pipeline import PipelineSchedule
from mlagen.dsl.signature import Argument
from mlagen.errors import ProofError

TOLD = 4  # violations that a refusal names


def build_pipeline(
    schedule: PipelineSchedule,
    templates: Templates,
    problem: Mapping[str, Any],
    header: Mapping[str, Any],
    *,
    allow_unproved: bool,
) -> Artifact:
    """The artifact of a pipeline schedule; `problem`: its fields as plain values, `header`: what
    the title lines show. Raises like `mlagen.codegen.build`."""
    printed, proof = prove_pipeline(schedule, templates, allow_unproved=allow_unproved)
    text, source = render_pipeline(schedule, templates, printed, header)
    target = schedule.target.name
    made = assemble_ptx(
        text,
        file_name=f"{schedule.name}.ptx",
        source_lines={line.asm_line: line for line in source},
        schedule_file=schedule.file,
        target=target,
    )
    signature = schedule.signature
    manifest = Manifest(
        kernel=schedule.name,
        symbol=schedule.symbol,
        target=target,
        family=getattr(schedule.problem, "family", ""),  # a problem need not be of one
        problem_type=type(schedule.problem).__name__,
        problem=dict(problem),
        schedule_file=schedule.file,
        knobs=dict(schedule.knobs),
        args=tuple(_argument(argument) for argument in signature.arguments),
        kernarg_bytes=signature.kernarg_bytes,
        block=signature.block,
        grid=tuple(GridDim(size=size, tile=tile) for size, tile in signature.grid),
        resources=Resources(
            vgprs=made.registers,
            agprs=0,
            sgprs=0,
            lds_bytes=schedule.smem.used,
            scratch_bytes=made.stack_bytes,
            vgpr_spills=made.spill_store_bytes + made.spill_load_bytes,
            sgpr_spills=0,
        ),
        proof=Proof(
            status="unproved" if proof.violations else "proved",
            reasons=proof.violations,
            checked_tiles=proof.tiles,
            pairs=proof.checked,
        ),
        tools=ptxas_versions(target),
        flags=ptxas_flags(target),
        text_sha256=sha256(text),
        code_sha256=sha256(made.cubin),
        map=pipeline_map(schedule),
        source=tuple(source),
        dependent=signature.dependent,
    )
    return Artifact(manifest, made.cubin, text)


def prove_pipeline(
    schedule: PipelineSchedule, templates: Templates, *, allow_unproved: bool = False
) -> tuple[Emitter, PipelineProof]:
    """The printed streams and their proof: of the pipelines, and that they do what the plain loop
    does. ProofError for what is not so, unless it is allowed."""
    check_pipelines(schedule)
    found = check_words(schedule)
    if found and not allow_unproved:
        raise ProofError("\n".join(found[:TOLD]))
    loops, proof = plan(schedule)
    found += proof.violations
    if found and not allow_unproved:
        raise ProofError("\n".join(found[:TOLD]))
    printed = print_streams(schedule, templates, loops)
    found = found or check_flow(schedule, loops, printed, proof.ways)
    if found and not allow_unproved:
        raise ProofError("\n".join(found))
    return printed, replace(proof, violations=found)


def _argument(argument: Argument) -> Arg:
    box = argument.tensor_map
    return Arg(
        name=argument.name,
        offset=argument.offset,
        size=argument.size,
        kind=argument.kind,
        access=argument.access,
        dtype=argument.dtype,
        align=argument.align,
        tensor_map=None
        if box is None
        else TensorMapSpec(
            tensor=box.tensor,
            dtype=box.dtype,
            cols=box.cols,
            box_cols=box.box_cols,
            box_rows=box.box_rows,
            swizzle_bytes=box.swizzle_bytes,
        ),
    )
