"""Leaves out the derived waits that the proof does not need.

By the rules each role waits for every tile it uses, and its warps synchronise before every copy.
Where an exchange or another wait already gives that knowledge, the wait costs time for nothing.
Waits are tried from the last to the first: one that the proof holds without is left out.
"""

from __future__ import annotations

from mlagen.codegen.sm_90a.derive import derive, looped
from mlagen.codegen.sm_90a.proof import PipelineProof, prove_pipelines
from mlagen.codegen.sm_90a.runs import Loop
from mlagen.dsl.pipeline import PipelineSchedule

OPTIONAL = ("wait_full", "sync")


def plan(schedule: PipelineSchedule) -> tuple[list[Loop], PipelineProof]:
    """The streams with the waits they need, and their proof. Nothing is left out of a schedule that
    the proof refuses, so that its errors stay."""
    whole = [derive(schedule, stream) for stream in schedule.streams]
    if prove_pipelines(schedule, whole, quick=True).violations:
        return whole, prove_pipelines(schedule, whole)
    loops = list(whole)
    for at, loop in enumerate(loops):
        steps = list(loop.cluster.operations())
        for step in [s for s in reversed(loop.cluster.operations()) if s.name in OPTIONAL]:
            fewer = [s for s in steps if s is not step]
            tried = looped(schedule, loop.stream, loop.prologue, fewer, loop.epilogue)
            others = [*loops[:at], tried, *loops[at + 1 :]]
            if not prove_pipelines(schedule, others, quick=True).violations:
                steps, loops[at] = fewer, tried
    proof = prove_pipelines(schedule, loops)
    return (whole, prove_pipelines(schedule, whole)) if proof.violations else (loops, proof)
