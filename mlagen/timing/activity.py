"""What a workgroup does, counted in the units that cost energy.

Counts depend on the stream alone: no machine, no cycle. `power` turns them into watts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from mlagen.binary import KernelCode, MachineInstruction
from mlagen.binary.banks import access_bytes
from mlagen.binary.effects import TRANSCENDENTAL, is_lds_dma, is_matrix
from mlagen.emulator.streams import ExecutedStream
from mlagen.timing.costs import memory_bytes
from mlagen.timing.loops import flops_of

_FOUR_BIT = 4  # cbsz and blgp: e2m1 (AMD CDNA4 ISA guide)
_TRANSCENDENTAL_WORK = 2.0  # vector instructions that one is worth: twice the slots


@dataclass(frozen=True, slots=True)
class Activity:
    """Floating-point operations of matrix instructions by the format of their operands; vector
    instructions of a wave (packed ones and transcendental ones count as two); bytes that LDS
    instructions and loads to LDS move there, that loads and stores move beyond the compute unit,
    and that the HBM delivers."""

    bf16: float = 0.0
    f16: float = 0.0
    f8: float = 0.0
    f4: float = 0.0
    vector: float = 0.0
    lds: float = 0.0
    l2: float = 0.0
    hbm: float = 0.0

    def __add__(self, other: Activity) -> Activity:
        return Activity(*(a + b for a, b in zip(self.values, other.values, strict=True)))

    def __mul__(self, factor: float) -> Activity:
        return Activity(*(a * factor for a in self.values))

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @staticmethod
    def sum(parts: Iterable[Activity]) -> Activity:
        return sum(parts, start=Activity())


def activity_of(stream: ExecutedStream, kernel: KernelCode) -> Activity:
    """What the workgroup of a stream does. HBM: nothing; that hangs on the whole grid."""
    count = len(kernel.instructions)
    executed = np.bincount(stream.row, minlength=count)
    steps = stream.access >= 0
    lanes_of = (stream.addresses >= 0).sum(axis=1)
    lanes = np.bincount(stream.row[steps], lanes_of[stream.access[steps]], minlength=count)
    total = dict.fromkeys((field.name for field in fields(Activity)), 0.0)
    for row in np.flatnonzero(executed):
        ins, times = kernel.instructions[row], float(executed[row])
        if is_matrix(ins):
            total[format_of(ins)] += flops_of(ins) * times
        elif ins.encoding.startswith("VOP"):
            total["vector"] += _work(ins) * times
        elif ins.encoding == "DS":
            total["lds"] += lds_bytes(ins) * float(lanes[row])
        elif moved := memory_bytes(ins):
            total["l2"] += moved * float(lanes[row])
            total["lds"] += moved * float(lanes[row]) if is_lds_dma(ins) else 0.0
    return Activity(**total)


def format_of(ins: MachineInstruction) -> str:
    """The field of `Activity` that counts a matrix instruction's operations.

    Nobody published what products of 6-bit numbers, of 8-bit integers and of f32 take: the former
    two are counted as 8-bit ones, the last as bf16 ones.
    """
    name = ins.mnemonic
    if "f8f6f4" in name:
        formats = (ins.modifier("cbsz"), ins.modifier("blgp"))
        return "f4" if all(each == _FOUR_BIT for each in formats) else "f8"
    if "fp8" in name or "bf8" in name or name.endswith("_i8"):
        return "f8"
    return "f16" if name.endswith("_f16") else "bf16"


def lds_bytes(ins: MachineInstruction) -> int:
    """Bytes that a lane of a DS instruction moves."""
    if "read2" in ins.mnemonic or "write2" in ins.mnemonic:
        return 16 if ins.mnemonic.endswith("b64") else 8
    return access_bytes(ins)


def _work(ins: MachineInstruction) -> float:
    if ins.mnemonic in TRANSCENDENTAL:
        return _TRANSCENDENTAL_WORK
    return 2.0 if ins.mnemonic.startswith("v_pk_") and "f32" in ins.mnemonic else 1.0
