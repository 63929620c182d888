"""Reads that move data between lanes while some lanes are off: what they give is not defined.

CDNA4 ISA guide, 11.4: the transposing reads of LDS need EXEC to be all ones. Where EXEC comes from
arguments, values of them are looked for that the path allows and that leave some lanes on, some
off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.audit.gfx950.lds.decisions import Decisions
from mlagen.audit.gfx950.lds.expressions import (
    LANES,
    LEAF,
    OPAQUE,
    Node,
    Scalar,
    Values,
    mask_of,
)
from mlagen.audit.gfx950.lds.masks import MADE
from mlagen.binary.integers import MASK, RELATIONS, SCALAR, VECTOR, signed
from mlagen.targets.gfx950.limits import GFX950

_HALF = GFX950.wave_size // 2
_SAME_IN_ALL_LANES = ("kernarg", "workgroup", "memory")


WHOLE, UNKNOWN = "whole", "unknown"


class _UnknownError(Exception):
    """Not evaluated lane by lane."""


@dataclass(frozen=True, slots=True)
class Partial:
    """An EXEC mask with some lanes on and some `off`, and the values that make it so."""

    off: int
    by: str


def partial_lanes(mask: tuple[Scalar, Scalar], decisions: Decisions) -> Partial | str:
    """What a mask (its lower and upper half) can be on a path that turns some lanes off. WHOLE
    where nothing was found that does, UNKNOWN where the mask comes about in ways that are not
    followed."""
    known = {leaf for half in mask if isinstance(half, Node) for leaf in half.leaves}
    leaves = sorted(known, key=lambda leaf: leaf.serial)
    if any(leaf.op == OPAQUE for leaf in leaves):
        return UNKNOWN
    try:
        for values in decisions.allowed(leaves):
            low, high = (_bits(half, number, values) for number, half in enumerate(mask))
            on = (low | high << _HALF).bit_count()
            if 0 < on < GFX950.wave_size:
                return Partial(GFX950.wave_size - on, decisions.told(leaves, values))
    except _UnknownError:
        return UNKNOWN
    return WHOLE


def _bits(half: Scalar, number: int, values: Values) -> int:
    """32 bits of a mask, the lower ones for 0."""
    if isinstance(half, int):
        return half
    if half.op == MADE:
        table, *masks = half.args
        return mask_of(table, *(_bits(mask, number, values) for mask in masks))
    if half.op == "constant":
        return int(half.args[0])
    if not half.op.startswith("v_cmp_"):
        raise _UnknownError
    relation, _, kind = half.op.removeprefix("v_cmp_").partition("_")
    a, b = (_lanes(side, values) for side in half.args)
    if kind == "i32":
        a, b = signed(a), signed(b)
    holds = np.broadcast_to(np.asarray(RELATIONS[relation](a, b)), (GFX950.wave_size,))
    chosen = np.flatnonzero(holds[number * _HALF : (number + 1) * _HALF]).tolist()
    return sum(1 << lane for lane in chosen)


def _lanes(value: Any, values: Values) -> Any:
    """A number, or one a lane."""
    if not isinstance(value, Node):
        return value
    if value.op == LEAF:
        if value.args[0] not in _SAME_IN_ALL_LANES:
            raise _UnknownError
        return values.of(value)
    if value.op == LANES:
        return np.frombuffer(value.args[0], dtype=np.int64)
    integer = VECTOR.get(value.op) or SCALAR.get(value.op)
    if integer is None:
        raise _UnknownError
    return integer.function(*(_lanes(part, values) for part in value.args)) & MASK
