"""Leaves out the derived waits that the proof does not need.

Each role is told to wait for every tile it uses, and its warps to meet before every copy. Where a
exchange or another wait already carries that knowledge, the wait costs time for nothing. Waits are
tried from the last to the first: out goes what the proof holds without.
"""

from __future__ import annotations

from mlagen.targets.nvidia.codegen.derive import derive, without
from mlagen.targets.nvidia.codegen.derived import FENCES
from mlagen.targets.nvidia.codegen.proof import PipelineProof, Prover
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule

OPTIONAL = ("wait_full", "sync", *FENCES)


def plan(schedule: PipelineSchedule) -> tuple[list[Loop], PipelineProof]:
    """The streams with the waits they need, and their proof. What is wrong with a schedule stays
    wrong: nothing is left out of one that the proof refuses."""
    whole = [derive(schedule, stream) for stream in schedule.streams]
    prover = Prover(schedule)
    first = prover.prove(whole, quick=True)
    if first.violations:
        return whole, prover.prove(whole)
    loops, idle = list(whole), first.idle
    for at, loop in enumerate(whole):
        for step in [s for s in reversed(loop.operations) if s.name in OPTIONAL]:
            tried, alike = without(schedule, loops[at], step)
            if alike:
                prover.tracks.leave_out(loops[at], tried, step)
            # Nothing comes of a wait that told nobody anything: all goes on as it was proved.
            if not (alike and id(step) in idle):
                proof = prover.prove([*loops[:at], tried, *loops[at + 1 :]], quick=True)
                if proof.violations:
                    continue
                idle = proof.idle
            loops[at] = tried
    proof = prover.prove(loops)
    return (whole, prover.prove(whole)) if proof.violations else (loops, proof)
