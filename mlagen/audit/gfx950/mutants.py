"""Defects put into machine code, one at a time, to see whether a checker tells them.

Waits ask for less or for nothing, barriers become s_nop, s_nop gives fewer wait states. The code
keeps its length, so every offset stays what it was.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, fields, replace

from mlagen.audit.gfx950.budget import DEFAULT_LIMIT
from mlagen.audit.gfx950.check import audit_kernel
from mlagen.audit.gfx950.findings import Finding, InstructionPair
from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.binary import KernelCode
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.text import waitcnt_fields
from mlagen.errors import ConfigError
from mlagen.targets.gfx950.limits import GFX950

_NOP = 0xBF800000  # s_nop 0 (CDNA4 ISA guide, SOPP)
_FULL = (GFX950.vmcnt_max, GFX950.expcnt_max, GFX950.lgkmcnt_max)
_NAMES = ("vmcnt", "expcnt", "lgkmcnt")


@dataclass(frozen=True, slots=True)
class CodeMutant:
    """One defect. `kind`: waits, barriers, nops; `pc`: byte offset from the kernel's entry;
    `word`: the instruction word that stands there instead."""

    kind: str
    operator: str
    pc: int
    before: str
    what: str
    word: int

    def apply(self, kernel: KernelCode) -> KernelCode:
        """The kernel with this defect."""
        code = bytearray(kernel.code)
        struct.pack_into("<I", code, self.pc, self.word)
        return replace(kernel, code=bytes(code))


@dataclass(frozen=True, slots=True)
class AuditedMutant:
    """A mutant and the errors that the audit tells of it but not of the original, each with the
    places that are new."""

    mutant: CodeMutant
    told: tuple[Finding, ...]


def code_mutants(kernel: KernelCode) -> list[CodeMutant]:
    """All mutants of a kernel, in the order of the code."""
    return [mutant for ins in kernel.instructions for mutant in _mutants_of(ins)]


def draw(mutants: Sequence[CodeMutant], count: int, seed: int) -> list[CodeMutant]:
    """`count` of them at random, all for 0; ConfigError for fewer than none."""
    if count < 0:
        raise ConfigError(f"a sample of {count} mutants; at least 1")
    if not count or count >= len(mutants):
        return list(mutants)
    chosen = sorted(random.Random(seed).sample(range(len(mutants)), count))
    return [mutants[index] for index in chosen]


def _mutants_of(ins: MachineInstruction) -> Iterator[CodeMutant]:
    value = ins.modifier("simm16")
    if ins.mnemonic == "s_waitcnt":
        yield from _weaker(ins, waitcnt_fields(value))
    elif ins.mnemonic == "s_barrier":
        yield CodeMutant("barriers", "removed", ins.offset, str(ins), "s_nop 0", _NOP)
    elif ins.mnemonic == "s_nop" and value & 15:
        count = value & 15
        for operator, less in (("one less", count - 1), ("none but one", 0)):
            if less < count and not (operator == "none but one" and count == 1):
                word = _NOP | less
                yield CodeMutant("nops", operator, ins.offset, str(ins), f"s_nop {less}", word)


def _weaker(ins: MachineInstruction, counts: tuple[int, int, int]) -> Iterator[CodeMutant]:
    for place in (0, 2):
        given, full = counts[place], _FULL[place]
        if given >= full:
            continue
        for operator, count in (("count + 1", given + 1), ("removed", full)):
            if operator == "count + 1" and count == full:
                continue
            changed = list(counts)
            changed[place] = count
            told = f"{_NAMES[place]}({given}) -> " + (str(count) if count < full else "none")
            yield CodeMutant("waits", operator, ins.offset, str(ins), told, _waitcnt(*changed))


def _waitcnt(vm: int, exp: int, lgkm: int) -> int:
    """The word of an s_waitcnt (CDNA4 ISA guide, S_WAITCNT)."""
    return 0xBF8C0000 | vm & 15 | exp << 4 | lgkm << 8 | (vm >> 4) << 14


def audit_mutants(
    kernel: KernelCode,
    *,
    threads: int = 0,
    launch: KnownLaunch = NOT_KNOWN,
    sample: int = 0,
    seed: int = 0,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int], None] | None = None,
) -> list[AuditedMutant]:
    """Audit the mutants of a kernel; what the original is told for is left out."""
    original = audit_kernel(kernel, threads, launch=launch, limit=limit)
    known = {_name(place) for finding in original.errors for place in finding.places}
    chosen = draw(code_mutants(kernel), sample, seed)
    judged = []
    for number, mutant in enumerate(chosen):
        changed = mutant.apply(kernel)
        found = audit_kernel(changed, threads, launch=launch, limit=limit).errors
        told = tuple(new for finding in found for new in _without(finding, known))
        judged.append(AuditedMutant(mutant, told))
        if progress:
            progress(number + 1, len(chosen))
    return judged


def _name(place: InstructionPair) -> tuple[object, ...]:
    return place.rule, place.pc, place.other_pc, place.resource, place.needs


def _without(finding: Finding, known: Set[tuple[object, ...]]) -> Iterator[Finding]:
    """The finding with its unknown places only, told for the first of them; nothing if all are
    known."""
    places = tuple(place for place in finding.places if _name(place) not in known)
    if places:
        first = {f.name: getattr(places[0], f.name) for f in fields(places[0])}
        yield replace(finding, **first, places=places)
