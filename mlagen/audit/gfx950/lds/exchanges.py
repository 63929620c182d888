"""Instructions by which lanes take data from other lanes, and from lanes that are off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.audit.gfx950.lds.expressions import Node, Scalar, Vector
from mlagen.binary.effects import effects
from mlagen.binary.exchanges import LANES, by_address, fixed_sources, offset_of, takes_by_address
from mlagen.binary.instruction import MachineInstruction


@dataclass(frozen=True, slots=True)
class LaneExchange:
    """`register`: physical number of the vector that says which lane each lane takes from, -1
    where the instruction says it, in `sources`."""

    ins: MachineInstruction
    register: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one execution was found to do. `mask`: EXEC; `lanes`: (lane, lane that is off) of each
    that takes from such a one, None where the mask or the address is not known."""

    mask: tuple[Scalar, Scalar]
    lanes: tuple[tuple[int, int], ...] | None


def read_exchange(ins: MachineInstruction, accum: int) -> LaneExchange | None:
    """None for an instruction that moves nothing between lanes."""
    sources = fixed_sources(ins)
    if sources is not None:
        return LaneExchange(ins, -1, sources)
    if not takes_by_address(ins):
        return None
    address = next(a for a in effects(ins, accum).reads if a.role == "lds_address")
    return LaneExchange(ins, address.base, ())


def taken(exchange: LaneExchange, mask: tuple[Scalar, Scalar], address: Vector) -> Taken | None:
    """What it takes from lanes that are off under a mask that is not all ones; None: nothing.
    `address`: its register's value, 0 where it has none."""
    low, high = mask
    if isinstance(low, Node) or isinstance(high, Node) or isinstance(address, Node):
        return Taken(mask, None)
    on = low | high << 32
    sources = exchange.sources
    if exchange.register >= 0:
        offset = offset_of(exchange.ins)
        lanes = np.broadcast_to(address, len(LANES)).tolist()
        sources = tuple(by_address(lane, offset) for lane in lanes)
    pairs = tuple(
        (lane, source)
        for lane, source in enumerate(sources)
        if on >> lane & 1 and source >= 0 and not on >> source & 1
    )
    return Taken(mask, pairs) if pairs else None
