"""What the host passes to a kernel and how many workgroups it starts, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SIZES = {"pointer": 8, "u32": 4, "i32": 4, "f32": 4}


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument at byte `offset` of the kernel-argument segment."""

    name: str
    offset: int
    kind: Literal["pointer", "u32", "i32", "f32"]
    access: Literal["read", "write", "value"]

    @property
    def size(self) -> int:
        return SIZES[self.kind]


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments in offset order; `grid[d]` = (size name, elements a workgroup covers) for each
    dimension; `block` in threads."""

    arguments: tuple[Argument, ...]
    grid: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]

    @property
    def kernarg_bytes(self) -> int:
        end = max(argument.offset + argument.size for argument in self.arguments)
        return -(-end // 8) * 8


def pack(*arguments: tuple[str, str, str]) -> tuple[Argument, ...]:
    """Arguments (name, kind, access) laid out one after another, each on its own alignment."""
    offset = 0
    packed = []
    for name, kind, access in arguments:
        size = SIZES[kind]
        offset = -(-offset // size) * size
        packed.append(Argument(name, offset, kind, access))  # type: ignore[arg-type]
        offset += size
    return tuple(packed)
