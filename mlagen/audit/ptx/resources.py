"""What can be read off the text alone: register counts, barrier numbers, shared-memory size."""

from __future__ import annotations

from mlagen.audit.ptx.program import EntryProgram
from mlagen.audit.ptx.report import Finding, Notes
from mlagen.ptx import Instruction, Kind
from mlagen.targets.sm_90a.limits import SM_90A

FOLLOWED = 1 << 20  # bytes of shared memory, up to which the paths of a block are followed
LEAST, MOST, STEP = SM_90A.setmaxnreg_min, SM_90A.setmaxnreg_max, SM_90A.setmaxnreg_step
_DESCRIPTOR_ALIGN = SM_90A.swizzle_align(128)


def check(program: EntryProgram, shared_bytes: int, threads: int, notes: Notes) -> None:
    """Tells `notes` what exceeds the target."""
    entry = program.entry

    def tell(rule: str, at: Instruction | None, message: str, needs: str = "") -> None:
        notes.add(
            Finding(
                rule=rule,
                function=entry.name,
                line=at.line if at else entry.line,
                text=at.text if at else f".entry {entry.name}",
                message=message,
                needs=needs,
            )
        )

    if shared_bytes > SM_90A.smem_bytes:
        tell(
            "smem-size",
            None,
            f"{shared_bytes} bytes of shared memory, the limit is {SM_90A.smem_bytes}",
        )
    for instruction, kind in zip(entry.instructions, program.graph.kinds, strict=True):
        if instruction.name == "call" and program.wgmma:
            why = "a call in a kernel that uses wgmma"
            notes.add(Finding("call", entry.name, instruction.line, "call", why))
        if kind is Kind.REGISTERS:
            value = instruction.operands[0]
            if isinstance(value, int) and not (LEAST <= value <= MOST and value % STEP == 0):
                tell(
                    "setmaxnreg-value",
                    instruction,
                    f"{value} registers",
                    f"{LEAST}..{MOST} in steps of {STEP}",
                )
            if not entry.block and not entry.max_registers:
                tell(
                    "setmaxnreg-entry",
                    instruction,
                    "the entry says neither its threads nor its registers: ptxas ignores this",
                    ".maxntid, .reqntid or .maxnreg",
                )
    if program.wgmma and any(not s.size and s.align < _DESCRIPTOR_ALIGN for s in entry.shared):
        dynamic = next(s for s in entry.shared if not s.size)
        notes.gap(
            f"{dynamic.name} is declared .align {dynamic.align}: that dynamic shared memory begins"
            f" at a multiple of {_DESCRIPTOR_ALIGN} is assumed"
        )
    if threads % 128 and program.wgmma:
        notes.gap(f"{threads} threads are no whole number of warpgroups")
