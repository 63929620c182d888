"""Registers that an instruction names and its kernel does not have, by the descriptor."""

from __future__ import annotations

from mlagen.binary.descriptor import KernelDescriptor
from mlagen.binary.effects import Effects
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.operand import register_name
from mlagen.targets.gfx950.limits import GFX950


def unallocated(
    ins: MachineInstruction, effect: Effects, descriptor: KernelDescriptor, accumulators: bool
) -> tuple[str, str]:
    """The first registers beyond the kernel's, and how many it allocates; ("", "") for none.

    `effect`: of the instruction with the descriptor's `accum_offset`, or with 0 where the code
    names no accumulation registers. `accumulators`: it names some. VCC, M0, EXEC and the like each
    wave has.

    The hardware allocates vector registers of both kinds together, in steps of 8, and a register is
    out of range from the end of that on (CDNA4 ISA guide, "Out-of-Range behavior"); what a kernel
    asked for below that step no descriptor tells. So `accum_offset` ends the vector registers only
    where accumulation registers lie behind it.
    """
    arch = min(descriptor.accum_offset, descriptor.vgprs) if accumulators else descriptor.vgprs
    for _, operand in ins.operands:
        end = operand.index + (operand.count if accumulators else 1)
        if operand.kind == "v" and end > arch:
            return str(operand), f"{arch} vector registers"
    for access in (*effect.reads, *effect.writes):
        last = access.base + access.count
        if access.file == "v" and last > descriptor.vgprs:
            if not accumulators or access.base < arch:
                name = register_name("v", access.base, access.count)
                return name, f"{arch} vector registers"
            name = register_name("a", access.base - descriptor.accum_offset, access.count)
            return name, f"{descriptor.vgprs - arch} accumulation registers"
        if access.file == "s" and access.base < GFX950.sgprs_per_wave and last > descriptor.sgprs:
            name = register_name("s", access.base, access.count)
            return name, f"{descriptor.sgprs} scalar registers"
    return "", ""


__all__ = ["unallocated"]
