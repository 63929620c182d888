"""Leaves out the derived waits that the proof does not need.

Each role is told to wait for every tile it uses, and its warps to meet before every copy. Where a
exchange or another wait already carries that knowledge, the wait costs time for nothing. Waits are
tried from the last to the first: out goes what the proof holds without.
"""

from __future__ import annotations

from mlagen.targets.sm_90a.codegen.derive import derive, looped
from mlagen.targets.sm_90a.codegen.proof import PipelineProof, prove_pipelines
from mlagen.targets.sm_90a.codegen.runs import Loop
from mlagen.targets.sm_90a.dsl.pipeline import PipelineSchedule

OPTIONAL = ("wait_full", "sync")


def plan(schedule: PipelineSchedule) -> tuple[list[Loop], PipelineProof]:
    """The streams with the waits they need, and their proof. What is wrong with a schedule stays
    wrong: nothing is left out of one that the proof refuses."""
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
