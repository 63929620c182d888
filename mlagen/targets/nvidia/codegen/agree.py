"""The text's immediates within their limits, and the cubin's resources against the schedule's.

ptxas refuses some numbers that an instruction cannot hold and takes others as they are; and what it
writes into the cubin for the driver is what a launch will get. Both are looked at in each build.
"""

from __future__ import annotations

import re

from mlagen.codegen.origin import Generated
from mlagen.errors import CapacityError, TemplateError, UnsupportedError
from mlagen.ptx import read_ptx
from mlagen.ptx.immediates import misfits
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule
from mlagen.targets.nvidia.ptxas import PtxasResult

SYSTEM_BYTES = 1024  # of shared memory, kept by the system (CUDA programming guide, 9.0, 10.0)
_SHOWN = 5
# The barrier of an instruction that names one; one in a register may be any of all.
_BARRIER = re.compile(
    r"^[^/\n]*\b(?:bar|barrier)(?:\.cta)?\.(?:sync|arrive|red)\S*\s+([^\s,;]+)", re.M
)


def check_immediates(made: Generated) -> None:
    """TemplateError for numbers that their instruction does not take, at their lines. Text that our
    reader does not understand is left to ptxas."""
    try:
        entries = read_ptx(made.text).entries
    except UnsupportedError:
        return
    found = [misfit for entry in entries for misfit in misfits(entry)]
    if found:
        shown = [made.at(x.instruction.line, x.why) for x in found[:_SHOWN]]
        if len(found) > _SHOWN:
            shown.append(f"and {len(found) - _SHOWN} more")
        raise TemplateError("\n  ".join(shown))


def check_cubin(schedule: PipelineSchedule, assembled: PtxasResult, text: str) -> None:
    """TemplateError, or CapacityError for memory and barriers, where the cubin asks for something
    else than the schedule, which its manifest will tell. `text`: the PTX, whose barriers it has."""
    facts = assembled.facts
    if facts is None:
        return
    name, arguments = schedule.name, schedule.signature.arguments
    if facts.registers != assembled.registers or facts.stack_bytes != assembled.stack_bytes:
        raise TemplateError(
            f"{name}: the cubin has {facts.registers} registers and {facts.stack_bytes} bytes of "
            f"stack, ptxas said {assembled.registers} and {assembled.stack_bytes}"
        )
    # A launch gives the driver one pointer a parameter: where each lies is ptxas's own.
    has, wanted = [size for _, size in facts.parameters], [x.size for x in arguments]
    if has != wanted:
        raise TemplateError(
            f"{name}: the cubin's parameters have {has} bytes, the schedule's arguments {wanted}"
        )
    if facts.static_bytes > SYSTEM_BYTES:
        raise CapacityError(
            f"{name}: a template declares {facts.static_bytes - SYSTEM_BYTES} bytes of shared "
            "memory of its own",
            hint="s.smem hands it out: what it does not know is in no proof",
        )
    if facts.barriers > schedule.smem.barriers:
        raise CapacityError(
            f"{name}: the cubin uses barriers up to number {facts.barriers - 1}, the schedule has "
            f"handed out {schedule.smem.barriers}",
            hint="exchanges of the schedule hand barriers out: s.smem.exchange",
        )
    # No fewer is no fault: ptxas leaves out what cannot be reached.
    named = _BARRIER.findall(text)
    if named and all(map(str.isdigit, named)) and facts.barriers > 1 + max(map(int, named)):
        raise TemplateError(
            f"{name}: the cubin uses {facts.barriers} barriers, the text names none from "
            f"{1 + max(map(int, named))} on"
        )
