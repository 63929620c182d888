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
        line, text = (at.line, at.text) if at else (entry.line, f".entry {entry.name}")
        notes.add(Finding(rule, entry.name, line, text, message, needs=needs))

    if shared_bytes > SM_90A.smem_bytes:
        limit = f"the limit is {SM_90A.smem_bytes}"
        tell("smem-size", None, f"{shared_bytes} bytes of shared memory, {limit}")
    for instruction, kind in zip(entry.instructions, program.graph.kinds, strict=True):
        if instruction.name == "call" and program.wgmma:
            why = "a call in a kernel that uses wgmma"
            notes.add(Finding("call", entry.name, instruction.line, "call", why))
        if kind is Kind.REGISTERS:
            value = instruction.operands[0]
            if isinstance(value, int) and not (LEAST <= value <= MOST and value % STEP == 0):
                fits = f"{LEAST}..{MOST} in steps of {STEP}"
                tell("setmaxnreg-value", instruction, f"{value} registers", fits)
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
