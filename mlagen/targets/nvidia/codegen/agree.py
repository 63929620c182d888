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
from mlagen.targets.nvidia.limits import Nvidia
from mlagen.targets.nvidia.ptxas import PtxasResult

SYSTEM_BYTES = 1024  # of shared memory, kept by the system (CUDA programming guide, 9.0, 10.0)
_SHOWN = 5
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
# The barrier of an instruction that names one; a reduction writes its result before.
_BARRIER = re.compile(
    r"\b(?:bar|barrier)(?:\.cta)?\.(?:(?:sync|arrive)[\w.]*|red[\w.]*\s+[^\s,;]+\s*,)\s*([^\s,;]+)"
)
_CLUSTER = re.compile(r"\bbarrier\.cluster\.")


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
    least, most = named_barriers(text)
    if not least <= facts.barriers <= most:
        numbers = str(least) if least == most else f"{least} to {most}"
        raise TemplateError(
            f"{name}: the cubin has {facts.barriers} named barriers, the text names {numbers}",
            hint="ptxas leaves out what it finds no way to: a barrier there is waited at by nobody",
        )


def named_barriers(text: str) -> tuple[int, int]:
    """The least and the most named barriers that a cubin of this PTX has, of which nothing is out
    of reach: one more than the largest number. One in a register may be any, where ptxas cannot
    tell its number; barriers of a cluster take number 0."""
    code = _COMMENT.sub("", text)
    ids = _BARRIER.findall(code)
    numbers = [int(one, 0) for one in ids if one[0].isdigit()]
    least = 1 + max(numbers, default=0 if _CLUSTER.search(code) else -1)
    return least, least if len(numbers) == len(ids) else Nvidia.named_barriers
