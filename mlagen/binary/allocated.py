"""Registers that an instruction names and its kernel does not have, by the descriptor."""

from __future__ import annotations

from mlagen.binary.descriptor import Descriptor
from mlagen.binary.effects import Effects
from mlagen.binary.instruction import Instruction
from mlagen.binary.operand import register_name
from mlagen.targets.gfx950.limits import GFX950


def unallocated(ins: Instruction, effect: Effects, descriptor: Descriptor) -> tuple[str, str]:
    """The first registers beyond the kernel's, and how many it allocates; ("", "") for none.

    `effect`: of the instruction with the descriptor's `accum_offset`, or with 0 where the code
    names no accumulation registers. VCC, M0, EXEC and the like each wave has.
    """
    for access in (*effect.reads, *effect.writes):
        last = access.base + access.count
        if access.file == "v" and last > descriptor.vgprs:
            return _vector(access.base, access.count, descriptor)
        if access.file == "s" and access.base < GFX950.sgprs_per_wave and last > descriptor.sgprs:
            name = register_name("s", access.base, access.count)
            return name, f"{descriptor.sgprs} scalar registers"
    for _, operand in ins.operands:
        if operand.kind == "v" and operand.index >= min(descriptor.accum_offset, descriptor.vgprs):
            return str(operand), _arch(descriptor)
    return "", ""


def _vector(base: int, count: int, descriptor: Descriptor) -> tuple[str, str]:
    arch = descriptor.accum_offset
    if base < arch or arch >= descriptor.vgprs:
        return register_name("v", base, count), _arch(descriptor)
    name = register_name("a", base - arch, count)
    return name, f"{descriptor.vgprs - arch} accumulation registers"


def _arch(descriptor: Descriptor) -> str:
    return f"{min(descriptor.accum_offset, descriptor.vgprs)} vector registers"


__all__ = ["unallocated"]
