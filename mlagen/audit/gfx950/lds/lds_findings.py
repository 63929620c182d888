"""What the LDS part of an audit says."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.launch import NOT_KNOWN, KnownLaunch


@dataclass(frozen=True, slots=True)
class LdsOptions:
    """`launch`: what is known of it; without its block all threads of a workgroup lie in x.
    `runs`: sets of paths at most. `max_steps`:
    instructions that matter, and branches, which a wave may pass on one path."""

    launch: KnownLaunch = NOT_KNOWN
    runs: int = 40
    max_steps: int = 40_000


@dataclass(frozen=True, slots=True)
class LdsAccess:
    """One LDS instruction. `addresses`: "known", "unknown" (on some path), or "not reached".
    `lane_bytes`: bytes a lane moves. `start`, `end`: bytes touched, known ones (`end` exclusive).
    `cycles`, `ideal`: LDS cycles of its bank phases, at worst and without conflicts; None where
    phases are not published (`phases` says why)."""

    pc: int
    asm: str
    kind: str
    addresses: str
    lane_bytes: int
    start: int | None
    end: int | None
    cycles: int | None
    ideal: int | None
    phases: str


@dataclass(frozen=True, slots=True)
class BarrierTotal:
    """Barriers that waves of a workgroup passed on one set of paths."""

    waves: tuple[int, ...]
    barriers: int
    run: int


@dataclass(frozen=True, slots=True)
class LdsReport:
    """Findings, and how far they reach: `unchecked` names what was not decided, and why.
    `runs`: sets of paths followed; `blocks`: (reached, of all) basic blocks; `edges` likewise.
    `cut`: more sets of paths would have been followed, had there been steps left."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    accesses: tuple[LdsAccess, ...]
    barriers: tuple[BarrierTotal, ...]
    lds_bytes_used: int
    runs: int
    blocks: tuple[int, int]
    edges: tuple[int, int]
    cut: bool = False
