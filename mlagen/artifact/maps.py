"""What the generator knows of a kernel's inside, by name: roles, registers, memory, hand-offs.

Launching needs none of it; it is there for people who look into an artifact. Sizes are bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class RoleMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waves (warps on NVIDIA targets) `first` .. `last`. `stagger`: barriers it is behind.
    `registers`: of a thread of this role, 0 where all have the same. `threads`: that run it."""

    name: str
    first: int
    last: int
    stagger: int = 0
    registers: int = 0
    threads: int = 0


class RegisterMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`count` registers of `file` (v, s, or a PTX type) from `first` on; -1 where the assembler
    chooses them. Blocks with the same `bank` share registers. `block`: what the schedule calls it,
    where several slots belong to one."""

    name: str
    file: str
    count: int
    first: int = -1
    bank: str = ""
    block: str = ""
    comment: str = ""


class MemoryMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`slots` pieces of `slot_bytes` in LDS or shared memory, from byte `base` on.

    `cycles` of `ideal`: LDS cycles that reading a slot takes a wave, as the generator counts.
    """

    name: str
    kind: Literal["ring", "tile", "buffer", "message"]
    base: int
    slots: int
    slot_bytes: int
    layout: str = ""
    comment: str = ""
    cycles: int = 0
    ideal: int = 0


class HandoffMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Memory areas `areas` that `producer` fills together, `depth` deep, and `consumers` use.

    `full`, `empty`: addresses of the first mbarrier of each kind, -1 for none. `named`: number of
    the named barrier that takes both roles instead, -1 for none.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    depth: int
    bytes: int
    areas: tuple[str, ...] = ()
    full: int = -1
    empty: int = -1
    named: int = -1
    releases: int = 0
    resident: bool = False


class KernelMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of it."""

    roles: tuple[RoleMap, ...] = ()
    registers: tuple[RegisterMap, ...] = ()
    memory: tuple[MemoryMap, ...] = ()
    handoffs: tuple[HandoffMap, ...] = ()
