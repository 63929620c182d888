"""What the register checks need of each instruction, as bit masks that are quick to intersect.

Bit r is vector register r (physical: a0 is accum_offset), bit SCALARS_FROM + s scalar s, and MEMORY
stands for what an instruction does to LDS or global memory besides its registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from mlagen.binary import KernelCode
from mlagen.binary.effects import RegisterAccess, effects, is_lds_dma, is_vector_alu
from mlagen.binary.hazards import (
    consumer_class,
    overwrite_class,
    producer_class,
    read_producer_class,
)
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.operand import register_name
from mlagen.binary.text import waitcnt_fields
from mlagen.targets.gfx950.limits import GFX950

SCALARS_FROM = GFX950.vgprs_per_simd_lane
MEMORY = 1 << 1000
Queue = Literal["", "vm", "lds", "smem"]
CAPACITY: dict[str, int] = {"vm": GFX950.vmcnt_max, "lds": GFX950.lgkmcnt_max}
Classed = tuple[int, str]  # registers, and their class in the table of wait states

_STORES = ("store", "atomic", "write")


@dataclass(frozen=True, slots=True)
class Step:
    index: int
    ins: MachineInstruction
    reads: int
    writes: int
    queue: Queue
    results: int
    memory: Literal["", "lds", "dma", "store", "load"]
    wait: tuple[int, int] | None
    states: int
    indexed: bool
    made: tuple[Classed, ...]  # writes as producers
    held: tuple[Classed, ...]  # reads as producers (write after read)
    used: tuple[Classed, ...]  # reads as consumers
    over: tuple[Classed, ...]  # writes as consumers

    @property
    def is_barrier(self) -> bool:
        return self.ins.mnemonic == "s_barrier"


def read_steps(kernel: KernelCode) -> tuple[Step, ...]:
    """Facts of every reachable instruction, in the order of the code."""
    accum = kernel.descriptor.accum_offset
    steps = []
    indexing = False
    for number, ins in enumerate(kernel.instructions):
        if ins.mnemonic in ("s_set_gpr_idx_on", "s_set_gpr_idx_off"):
            indexing = ins.mnemonic.endswith("on")
        steps.append(_step(number, ins, accum, indexing and is_vector_alu(ins)))
    return tuple(steps)


def mask_of(access: RegisterAccess) -> int:
    first = access.base + (SCALARS_FROM if access.file == "s" else 0)
    return ((1 << access.count) - 1) << first


@lru_cache(maxsize=65536)
def _facts(ins: MachineInstruction, accum: int) -> tuple[Queue, tuple[tuple[Classed, ...], ...]]:
    effect = effects(ins, accum)
    made = tuple((mask_of(w), producer_class(ins, w)) for w in effect.writes)
    held = tuple(
        (mask_of(r), kind)
        for r in effect.reads
        if (kind := read_producer_class(ins, r, effect)) != "none"
    )
    used = tuple((mask_of(r), consumer_class(ins, r)) for r in effect.reads)
    over = tuple((mask_of(w), overwrite_class(ins, w)) for w in effect.writes)
    later = tuple((mask_of(w), w.role) for w in effect.writes if w.role in ("vmem", "lds", "smem"))
    return effect.counter, (made, held, used, over, later)


def covers(wait: tuple[int, int], queue: Queue, newer: int) -> bool:
    """Whether an s_waitcnt (vmcnt, lgkmcnt) covers an operation of a queue with so many later ones.
    Scalar loads return in any order; the highest count of a field asks for nothing."""
    vm, lgkm = wait
    if queue == "smem":
        return lgkm == 0
    limit = vm if queue == "vm" else lgkm
    return limit <= newer and limit < CAPACITY[queue]


def _step(index: int, ins: MachineInstruction, accum: int, indexed: bool) -> Step:
    counter, classed = _facts(replace(ins, offset=0), accum)
    if indexed:  # which registers it means is known only when it runs
        classed = tuple(_scalars_only(part) for part in classed)
    made, held, used, over, later = classed
    wait = None
    if ins.mnemonic == "s_waitcnt":
        vm, _, lgkm = waitcnt_fields(ins.modifier("simm16"))
        wait = (vm, lgkm)
    return Step(
        index=index,
        ins=ins,
        reads=_union(used),
        writes=_union(over),
        queue=counter,
        results=_union(later),
        memory=_memory(ins, counter),
        wait=wait,
        states=ins.modifier("simm16") % 16 + 1 if ins.mnemonic == "s_nop" else 1,
        indexed=indexed,
        made=made,
        held=held,
        used=used,
        over=over,
    )


def _memory(ins: MachineInstruction, counter: str) -> Literal["", "lds", "dma", "store", "load"]:
    if counter == "lds":
        return "lds"
    if counter != "vm":
        return ""
    if is_lds_dma(ins):
        return "dma"
    return "store" if any(word in ins.mnemonic for word in _STORES) else "load"


def _scalars_only(classed: tuple[Classed, ...]) -> tuple[Classed, ...]:
    return tuple((mask, kind) for mask, kind in classed if mask >> SCALARS_FROM)


def _union(classed: Sequence[Classed]) -> int:
    mask = 0
    for registers, _ in classed:
        mask |= registers
    return mask


def names_of(mask: int, accum_offset: int) -> str:
    """Registers of a mask as the assembler writes them: `v[4:7], a3, s[2:3]`."""
    parts = []
    bit = 0
    mask &= MEMORY - 1
    while mask >> bit:
        if not mask >> bit & 1:
            bit += 1
            continue
        end = bit
        while mask >> (end + 1) & 1 and end + 1 not in (SCALARS_FROM, accum_offset):
            end += 1
        kind, first = ("s", bit - SCALARS_FROM) if bit >= SCALARS_FROM else ("v", bit)
        if kind == "v" and bit >= accum_offset:
            kind, first = "a", bit - accum_offset
        parts.append(register_name(kind, first, end - bit + 1))
        bit = end + 1
    return ", ".join(parts)
