"""Operands of instructions as functions of a wave's registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.audit.gfx950.lds.expressions import Scalar
from mlagen.audit.gfx950.lds.wave import Wave
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.integers import MASK, RELATIONS, signed
from mlagen.binary.operand import Operand

Step = Callable[[Wave], None]


Read = Callable[[Wave], Any]


def reader(operand: Operand, accum: int) -> Read:
    """A function that reads the first dword of an operand."""
    if operand.kind == "s":
        number = operand.index
        return lambda w: w.s[number]
    if operand.is_register:
        register = operand.index + (accum if operand.kind == "a" else 0)
        return lambda w: w.read(register)
    bits = operand.bits
    return lambda w: bits


def sources_of(ins: MachineInstruction, accum: int = 0) -> list[Read]:
    return [reader(operand, accum) for name, operand in ins.operands if "src" in name]


def destination(ins: MachineInstruction) -> Operand:
    found = ins.operand("sdst") if ins.mnemonic.startswith("s_") else ins.operand("vdst")
    assert found is not None, ins
    return found


def pair(operand: Operand) -> Callable[[Wave], tuple[Scalar, Scalar]]:
    if operand.kind == "s":
        number = operand.index
        return lambda w: (w.s[number], w.s[number + 1])
    low = operand.bits
    high = MASK if operand.kind == "inline" and low & 0x80000000 else 0
    return lambda w: (low, high)


def signed_short(ins: MachineInstruction) -> int:
    constant = ins.modifier("simm16")
    return constant - 0x10000 if constant & 0x8000 else constant


def relate(w: Wave, relation: str, kind: str, a: Scalar, b: Scalar) -> Scalar:
    """A comparison: 0 or 1, or a condition."""
    if isinstance(a, int) and isinstance(b, int):
        test = RELATIONS[relation]
        return int(test(signed(a), signed(b)) if kind == "i32" else test(a, b))
    return w.expressions.of(f"{relation}_{kind}", a, b)
