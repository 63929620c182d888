"""Findings of the sanitizer as values: what happened, where, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect, named by the pair of instructions that shows it.

    `pc` and `other_pc` are byte offsets from the kernel's entry. `wave` / `other_wave` and
    `workgroup` are those of the first occurrence; `count` is how often the pair was met.
    `resource`: the registers, LDS bytes or buffer; `needs`: what would repair it, such as
    "vmcnt(2)".

    Kinds: missing-wait, overwrite-in-flight, race-raw, race-war, race-waw, wait-states,
    undefined-register, undefined-lds, unset-argument (bytes of the argument segment that no
    argument covers are used), barrier-unequal, lds-bounds, lds-alignment, global-bounds,
    global-alignment (atomics), race-global (an atomic and another access of two workgroups),
    not-ended (a workgroup that ran on for too long after its first finding and was stopped).
    """

    kind: str
    message: str
    pc: int
    asm: str
    wave: int
    workgroup: tuple[int, int, int]
    other_pc: int | None
    other_asm: str
    other_wave: int | None
    resource: str
    needs: str
    count: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
