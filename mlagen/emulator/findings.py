"""Findings of the sanitizer as values: what happened, where, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.severity import ERROR, Severity


@dataclass(frozen=True, slots=True)
class SanitizerFinding:
    """One defect, named by the pair of instructions that shows it.

    `pc` and `other_pc` are byte offsets from the kernel's entry. `wave` / `other_wave` and
    `workgroup` are those of the first occurrence; `count` is how often the pair was met.
    `resource`: the registers, LDS bytes or buffer; `needs`: what would repair it, such as
    "vmcnt(2)". `severity`: a word of mlagen.severity.

    Kinds: missing-wait, overwrite-in-flight, race-raw, race-war, race-waw, wait-states,
    undefined-register, undefined-lds, unset-argument (bytes of the argument segment that no
    argument covers are used), barrier-unequal, lds-bounds, lds-alignment, global-bounds,
    global-alignment (atomics), race-global (an atomic and another access of two workgroups),
    partial-exec (a transposing read while lanes are off), off-lane (a lane takes data from one that
    is off), not-ended (a workgroup that ran on for too long after its first finding and was
    stopped).
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
    severity: Severity = field(default=ERROR, kw_only=True)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class PtxFinding(SanitizerFinding):
    """A defect of PTX. `pc` and `other_pc` are numbers of instructions in the kernel's text, from
    0; `wave` is a warp of the block `workgroup`.

    `line`, `other_line`: of the text, 0 for none. `location`: what its `.loc` says ("kernel.cu:7:3"
    and where it was inlined), "" without. `severity` is "error" for what goes wrong on some
    machine, "letter" for what the ISA's text orders by nothing and every known machine does.

    Kinds: race-raw, race-war, race-waw, undefined-register, register-in-flight (the tensor core has
    it), undefined-shared, diverged, barrier-count, bar-order, mbarrier-misuse, bytes-uncounted,
    pending-at-exit, shared-gone and shared-early (a block of the cluster may have ended, or not
    begun), registers-budget, wgmma-misuse, global-bounds, shared-bounds, local-bounds,
    param-bounds, const-bounds, alignment, descriptor, map-misuse, tensormap-fence,
    undefined-tensor and tensor-misuse (of tensor memory), unset-argument, deadlock, trap,
    not-ended. The ones that end a run are told without the sanitizer too.
    """

    line: int
    other_line: int
    location: str
    other_location: str
