"""A pipeline schedule to an artifact: derive, prove, render, assemble."""

from __future__ import annotations

from dataclasses import replace

from mlagen.artifact import Artifact, Proof, Resources
from mlagen.codegen.manifest import Made, artifact_of, status_of
from mlagen.codegen.origin import Generated
from mlagen.codegen.templates import Templates
from mlagen.errors import ProofError
from mlagen.targets.nvidia.codegen.agree import check_cubin, check_immediates, named_barriers
from mlagen.targets.nvidia.codegen.completeness import check_words
from mlagen.targets.nvidia.codegen.derive import check_pipelines
from mlagen.targets.nvidia.codegen.descriptors import check_descriptors, check_extents
from mlagen.targets.nvidia.codegen.emit import Emitter
from mlagen.targets.nvidia.codegen.flow import check_flow
from mlagen.targets.nvidia.codegen.loads import loads_of
from mlagen.targets.nvidia.codegen.map import kernel_map
from mlagen.targets.nvidia.codegen.proof import PipelineProof, Prover
from mlagen.targets.nvidia.codegen.ptx_text import print_streams, render_pipeline
from mlagen.targets.nvidia.codegen.thin import plan
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule
from mlagen.targets.nvidia.ptxas import assemble_ptx, find_ptxas, ptxas_flags

TOLD = 4  # violations that a refusal names


def build(
    schedule: PipelineSchedule, templates: Templates, *, allow_unproved: bool = False
) -> Artifact:
    """The artifact of a pipeline schedule; see `mlagen.codegen.build`."""
    printed, proof = prove_pipeline(schedule, templates, allow_unproved=allow_unproved)
    text, source = render_pipeline(schedule, templates, printed)
    target = schedule.target.name
    lines = {line.asm_line: line for line in source}
    check_immediates(Generated(text, f"{schedule.name}.ptx", lines, schedule.file))
    assembled = assemble_ptx(
        text,
        file_name=f"{schedule.name}.ptx",
        source_lines=lines,
        schedule_file=schedule.file,
        target=target,
    )
    check_cubin(schedule, assembled, text)
    made = Made(
        symbol=schedule.symbol,
        text=text,
        code=assembled.cubin,
        resources=Resources(
            vgprs=assembled.registers,
            agprs=0,
            sgprs=0,
            lds_bytes=schedule.smem.used,
            scratch_bytes=assembled.stack_bytes,
            vgpr_spills=assembled.spill_store_bytes + assembled.spill_load_bytes,
            sgpr_spills=0,
            barriers=named_barriers(text)[0],
        ),
        proof=proof_of(schedule, proof),
        map=kernel_map(schedule),
        source=source,
        versions=dict(find_ptxas(target).versions),
        flags=ptxas_flags(target),
    )
    return artifact_of(schedule, made)


def proof_of(schedule: PipelineSchedule, proof: PipelineProof) -> Proof:
    """What is shown of a pipeline, as manifests say it."""
    return Proof(
        status=status_of(bool(proof.violations), compared=schedule.plain is not None),
        reasons=proof.violations,
        checked_tiles=proof.tiles,
        pairs=proof.checked,
    )


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
    loads = loads_of(printed)
    if loads.of and not found:
        found = Prover(schedule).prove(loops, loads=loads).violations
    if found and not allow_unproved:
        raise ProofError("\n".join(found[:TOLD]))
    found = found or check_descriptors(schedule, loops, printed)
    found = found or check_flow(schedule, loops, printed, proof.ways)
    found = found or check_extents(schedule, loops, printed)
    if found and not allow_unproved:
        raise ProofError("\n".join(found))
    return printed, replace(proof, violations=found)
