"""Where a load to LDS takes its bytes from: two that bring the same bytes need no order.

Kernels let two waves copy the same rows where the rows do not divide evenly. Which of the two comes
last cannot be told from what LDS then holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.audit.gfx950.lds.expressions import Expressions, Lanes, Node, Vector
from mlagen.binary.instruction import MachineInstruction


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """`base`: what the address is made of besides `offsets`, a byte offset for each active lane;
    where lanes are not known, `offsets` is None and `base` names their expression. `target`: LDS
    address of each active lane. `width`: bytes a lane moves."""

    base: tuple[Any, ...]
    offsets: Lanes | None
    target: Lanes
    width: int

    def agrees(self, other: Source | Written) -> bool:
        """Whether every byte of LDS that both write comes from the same place in memory."""
        if self is other:
            return True
        if isinstance(other, Written) or self.base != other.base:
            return False
        if self.offsets is None or other.offsets is None:
            return (
                self.offsets is other.offsets
                and self.width == other.width
                and np.array_equal(self.target, other.target)
            )
        here, mine = self._bytes(self.offsets)
        there, others = other._bytes(other.offsets)
        _, first, second = np.intersect1d(here, there, return_indices=True)
        return bool(np.array_equal(mine[first], others[second]))

    def _bytes(self, offsets: Lanes) -> tuple[Lanes, Lanes]:
        """LDS address and offset in memory of each byte."""
        step = np.arange(self.width, dtype=np.int64)
        return (self.target[:, None] + step).ravel(), (offsets[:, None] + step).ravel()


@dataclass(frozen=True, slots=True)
class Written:
    """What a DS write puts where: `address` and `values` of each active lane, as bytes where they
    are known, else an expression."""

    address: bytes
    values: tuple[Any, ...]

    def agrees(self, other: Source | Written) -> bool:
        """Whether the other puts the same there."""
        return self == other

    @property
    def known(self) -> bool:
        """Whether the values are numbers."""
        return not any(isinstance(value, Node) for value in self.values)


class Sources:
    """Makes sources, each distinct one once."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._known: dict[tuple[Any, ...], Source] = {}

    def of(
        self,
        ins: MachineInstruction,
        scalars: tuple[Any, ...],
        lanes: tuple[Vector, ...],
        target: Lanes,
        width: int,
        active: Any,
    ) -> Source | None:
        """The source of a load to LDS. `scalars`, `lanes`: the registers of its address.

        Buffers with an offset in lanes, and global addresses as a scalar base with such an offset,
        are compared byte by byte; others by the expressions of their registers. None for scratch,
        where equal addresses of two waves are not the same memory.
        """
        if ins.encoding not in ("MUBUF", "GLOBAL"):
            return None
        # Below a dword each form widens its bytes in a way of its own.
        kind = ins.mnemonic if "dword" not in ins.mnemonic else ins.encoding
        base: tuple[Any, ...] = (kind, ins.modifier("offen"), ins.modifier("idxen"), *scalars)
        offset = ins.modifier("offset")
        offsets = None
        if len(lanes) == 1 and not ins.modifier("idxen") and not isinstance(lanes[0], Node):
            offsets = np.broadcast_to(np.asarray(lanes[0]), active.shape)[active] + offset
            key: tuple[Any, ...] = (base, offsets.tobytes(), target.tobytes(), width)
        else:
            base = (*base, offset, *(self._expressions.plain(lane) for lane in lanes))
            key = (base, None, target.tobytes(), width)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Source(base, offsets, target, width)
        return found
