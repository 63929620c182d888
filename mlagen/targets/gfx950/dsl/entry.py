"""What a gfx950 kernel finds in its registers when it starts, and what its control flow reads.

The hardware and the kernel descriptor fix the first registers; the generated control flow counts
tiles and tells roles apart in scalar registers of its own. `Space.entry` declares all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.registers import Registers, Regs

AXES = "XYZ"


@dataclass(frozen=True, slots=True)
class EntryRegisters:
    """Registers that every kernel has. The prologue must set `wave` (where roles have code of their
    own it is there already) and `tiles`; of a persistent kernel it sets `items`, and what stands in
    `each_item` sets `tiles`. All waves of a workgroup set them alike.

    `temp`: vector temporaries; at entry the first holds the packed work-item id. `kernarg`: pointer
    to the kernel arguments. `group`: workgroup ids x, y, z. `wave`: number of this wave in its
    workgroup. `tiles`: N, how many tiles this workgroup runs. `left`: written by the loop. `items`:
    how many work items this workgroup does, `item`: which of them, from 0; counted by the control
    flow. None where the kernel is not persistent.
    """

    temp: Regs
    kernarg: Regs
    group: tuple[Regs, ...]
    wave: Regs
    tiles: Regs
    left: Regs
    items: Regs | None = None
    item: Regs | None = None


def declare_entry(
    registers: Registers, axes: tuple[str, str, str], temporaries: int, *, items: bool = False
) -> EntryRegisters:
    """Claim the entry registers; `axes` says what the workgroup ids count. They must come first."""
    if registers.used or registers.next_scalar:
        raise ScheduleError(
            "entry() comes before all other registers: the hardware fills the first ones"
        )
    scalar = registers.scalar
    # The kernel descriptor enables exactly these, in this order, at s0 (LLVM AMDGPUUsage, initial
    # kernel execution state).
    kernarg = scalar("KERNARG", 2, "kernel argument pointer")
    group = tuple(
        scalar(f"WG{axis}", 1, f"workgroup id {axis.lower()}: {what}")
        for axis, what in zip(AXES, axes, strict=True)
    )
    return EntryRegisters(
        temp=registers.block(
            "T", temporaries, "temporaries; T = packed work-item id at entry"
        ).regs(),
        kernarg=kernarg,
        group=group,
        wave=scalar("WAVE", 1, "wave of this workgroup"),
        tiles=scalar("N", 1, "tiles of this workgroup"),
        left=scalar("LEFT", 1, "steady iterations left"),
        items=scalar("ITEMS", 1, "work items of this workgroup") if items else None,
        item=scalar("ITEM", 1, "work item that is done now") if items else None,
    )
