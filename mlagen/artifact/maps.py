"""What the generator knows of a kernel's inside, by name: roles, registers, memory, pipelines.

Launching needs none of it; it is there for people who look into an artifact. Sizes are bytes. A
manifest may be a stranger's: numbers are held to what a kernel can have when one is read.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)]  # of waves, registers, slots, barriers
Bytes = Annotated[int, msgspec.Meta(ge=-1, le=1 << 30)]  # of a memory of a workgroup, or cycles


class RoleMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waves (warps on NVIDIA targets) `first` .. `last`. `stagger`: barriers it lags by.
    `registers`: of a thread of this role, 0 where all have the same. `threads`: that run it."""

    name: str
    first: Count
    last: Count
    stagger: Count = 0
    registers: Count = 0
    threads: Count = 0


class RegisterMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`count` registers of `file` (v, s, or a PTX type) from `first` on; -1 where the assembler
    chooses them. Blocks with the same `bank` share registers. `block`: what the schedule calls it,
    where several slots belong to one."""

    name: str
    file: str
    count: Count
    first: Count = -1
    bank: str = ""
    block: str = ""
    comment: str = ""


class MemoryMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`slots` pieces of `slot_bytes` in LDS or shared memory, from byte `base` on.

    `cycles` of `ideal`: LDS cycles that reading a slot takes a wave, as the generator counts.
    """

    name: str
    kind: Literal["ring", "tile", "buffer", "message"]
    base: Bytes
    slots: Count
    slot_bytes: Bytes
    layout: str = ""
    comment: str = ""
    cycles: Bytes = 0
    ideal: Bytes = 0


class TmemMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`slots` pieces of `columns` columns of tensor memory, from `column` of the allocation on.
    `stride`: columns from one to the next, 0 where they follow each other."""

    name: str
    column: Count
    columns: Count
    slots: Count = 1
    stride: Count = 0
    comment: str = ""


class HandoffMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Memory areas `areas` that `producer` fills together, `depth` deep, and `consumers` use.

    `full`, `empty`: addresses of the first mbarrier of each kind, -1 for none. `named`: number of
    the named barrier that takes both roles instead, -1 for none.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    depth: Count
    bytes: Bytes
    areas: tuple[str, ...] = ()
    full: Bytes = -1
    empty: Bytes = -1
    named: Count = -1
    releases: Count = 0
    resident: bool = False


class KernelMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of it."""

    roles: tuple[RoleMap, ...] = ()
    registers: tuple[RegisterMap, ...] = ()
    memory: tuple[MemoryMap, ...] = ()
    handoffs: tuple[HandoffMap, ...] = ()
    tmem: tuple[TmemMap, ...] = ()
