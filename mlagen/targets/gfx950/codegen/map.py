"""What the manifest tells of a kernel's inside: roles, registers, LDS."""

from __future__ import annotations

from mlagen.artifact import KernelMap, MemoryMap, RegisterMap, RoleMap
from mlagen.targets.gfx950.dsl import Exchange, Schedule


def kernel_map(schedule: Schedule) -> KernelMap:
    """The map of a schedule whose roles share one program."""
    registers = schedule.registers
    vector = tuple(
        RegisterMap(
            name=block.symbol(slot),
            file=block.file,
            count=block.count,
            first=block.first + slot * block.count,
            bank=block.bank,
            block=block.name,
            comment=block.comment,
        )
        for block in registers.blocks.values()
        for slot in range(block.slots)
    )
    scalar = tuple(
        RegisterMap(regs.name, "s", regs.count, regs.first, comment=regs.comment)
        for regs in registers.scalars.values()
    )
    return KernelMap(
        roles=tuple(
            RoleMap(role.name, role.waves.start, role.waves.stop - 1, role.stagger)
            for role in schedule.roles.members
        ),
        registers=vector + scalar,
        memory=tuple(
            MemoryMap(
                name=ring.name,
                kind="message" if isinstance(ring, Exchange) else "ring",
                base=ring.base,
                slots=ring.slots,
                slot_bytes=ring.slot_bytes,
                layout=ring.describe(),
                comment=ring.comment,
                cycles=ring.cycles[0],
                ideal=ring.cycles[1],
            )
            for ring in schedule.lds.slotted.values()
        ),
    )
