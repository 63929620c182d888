"""What each LDS instruction touches and costs, over all paths that were followed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.gfx950.lds.lds_findings import LdsAccess
from mlagen.audit.gfx950.lds.lds_program import LdsProgram, Seen
from mlagen.audit.gfx950.lds.sites import Site
from mlagen.binary.banks import BANK_BYTES, PHASES, cycles, served
from mlagen.targets.gfx950.limits import GFX950

_DYNAMIC = (
    f"as much LDS as there is, {GFX950.lds_bytes} bytes, was taken to be asked for at launch "
    "(--lds or --launch tells)"
)
_ADDRESS = (
    "LDS at addresses that are not known was taken to be inside of what there is, and in order"
)
_LARGE = (
    "arguments were taken to be such that LDS suffices: on paths of large ones it does not "
    "(--launch tells)"
)
_MASKED = "the active lanes of LDS accesses, where not known, were taken to be in order"


def bounds(program: LdsProgram) -> Iterator[Finding]:
    """Accesses beyond the LDS that the descriptor and the launch ask for. Where the launch is not
    known, a descriptor that asks for something is taken to ask for all, and one that asks for
    nothing to leave it to the launch, as Triton's do: that is a guess of each access."""
    static, dynamic = program.kernel.descriptor.lds_bytes, program.launch.dynamic_bytes
    asked = static + (dynamic or 0)
    if not asked and dynamic is None:
        asked = GFX950.lds_bytes
        for site in program.seen:
            yield Finding.assumed(program.kernel.name, site.ins, _DYNAMIC)
    for site, seen in program.seen.items():
        if seen.start is not None and seen.end > asked:
            yield Finding.at("lds-bounds", "error", program.kernel.name, (site.ins, None),
                             resource=f"LDS bytes {seen.start:#x}..{seen.end - 1:#x}",
                             needs=f"{seen.end} bytes of LDS",
                             message=f"the kernel has {asked} bytes of LDS")  # fmt: skip
        elif seen.enlarged_end > asked:
            yield Finding.assumed(program.kernel.name, site.ins, _LARGE)


def unknown(program: LdsProgram) -> Iterator[Finding]:
    """Accesses of which not all is known."""
    for site, seen in program.seen.items():
        if seen.unknown:
            yield Finding.assumed(program.kernel.name, site.ins, _ADDRESS)
        if seen.masked:
            yield Finding.assumed(program.kernel.name, site.ins, _MASKED)


def accesses(program: LdsProgram) -> tuple[LdsAccess, ...]:
    """All LDS instructions, by position."""
    known: dict[tuple[str, bytes], int] = {}
    found = [_access(site, seen, known) for site, seen in program.seen.items()]
    return tuple(sorted(found, key=lambda access: access.pc))


def _access(site: Site, seen: Seen, known: dict[tuple[str, bytes], int]) -> LdsAccess:
    phases = PHASES.get(site.ins.mnemonic)
    worst = None
    if phases is not None:
        for lanes in seen.addresses.values():
            # A shift by whole dwords turns the banks round, no more.
            shape = lanes - lanes[0] // BANK_BYTES * BANK_BYTES
            key = (site.ins.mnemonic, shape.tobytes())
            if key not in known:
                moved = (shape - shape.min() // BANK_BYTES * BANK_BYTES).astype(np.uint32)
                known[key] = cycles(served(moved, phases))
            worst = max(worst or 0, known[key])
    state = "unknown" if seen.unknown or seen.masked else "known" if seen.start is not None else ""
    why = "written in lane order" if site.kind == "dma" else "phases not published"
    if phases is not None:
        why = "phases assumed" if phases.assumed else ""
    return LdsAccess(
        pc=site.pc,
        asm=str(site.ins),
        kind=site.kind,
        addresses=state or "not reached",
        lane_bytes=sum(width for _, width in site.parts),
        start=seen.start,
        end=max(seen.end, seen.enlarged_end) if seen.start is not None else None,
        cycles=worst,
        ideal=len(phases.lanes) if phases is not None and worst is not None else None,
        phases=why,
    )
