"""Rows of tensor copies."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import tensors as s
from mlagen.emulator.ptx.translate.agents.agent_operands import SHARED, known, number, operand
from mlagen.emulator.ptx.translate.agents.copies import BYTES, REDUCTIONS
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import MemoryOperand

_DIMS = {f"{n}d": n for n in range(1, 6)}
_COMMON = {"async", "bulk", "tensor", "tile", "L2::cache_hint", "global", *_DIMS, *SHARED}
_LOAD = {BYTES, "multicast::cluster", "cta_group::1", "cta_group::2", "tile::gather4"}
_STORE = {"bulk_group", "tile::scatter4"}


def _map(t: Translator, i: Instruction, at: int, count: int) -> tuple[list[int], list[int]]:
    """The words of the map's address, and of the coordinates."""
    place = i.operands[at]
    if not isinstance(place, MemoryOperand) or len(place.coordinates) != count:
        raise not_modelled(i, "its coordinates")
    coordinates = [word for value in place.coordinates for word in operand(t, value)]
    return operand(t, MemoryOperand(place.base, place.offset)), coordinates


def tensor_copy(t: Translator, i: Instruction) -> Row:
    """cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, cp.async.bulk.prefetch.tensor."""
    if any(part.startswith("im2col") for part in i.parts):
        raise not_modelled(i, "im2col")
    dims = next((_DIMS[part] for part in i.parts if part in _DIMS), 0)
    if dims == 0:
        raise not_modelled(i, "its dimensions")
    rows = "tile::gather4" in i.parts or "tile::scatter4" in i.parts
    if rows and dims != 2:
        raise not_modelled(i, "gather4 and scatter4 have two dimensions")
    count = 5 if rows else dims
    flags = s.ROWS if rows else 0
    if "prefetch" in i.parts:
        known(i, _COMMON | {"prefetch", "L2", "tile::gather4"})
        address, at = _map(t, i, 0, count)
        return Row(
            y.X_TENSOR_COPY, s.PREFETCH, flags=flags, immediate=dims,
            items=number(0) + address + number(0) * 2 + at,
        )  # fmt: skip
    if "bulk_group" in i.parts:
        return _store(t, i, dims, count, flags)
    known(i, _COMMON | _LOAD)
    if BYTES not in i.parts:
        raise not_modelled(i, "its completion")
    if "cta_group::2" in i.parts:
        flags |= s.PAIR
    several = "multicast::cluster" in i.parts
    if several:
        flags |= s.MULTICAST
    given = 3 + several + ("L2::cache_hint" in i.parts)
    if len(i.operands) != given:
        raise not_modelled(i, f"{len(i.operands)} operands")
    address, at = _map(t, i, 1, count)
    items = operand(t, i.operands[0]) + address + operand(t, i.operands[2])
    items += operand(t, i.operands[3]) if several else number(0)
    return Row(y.X_TENSOR_COPY, s.LOAD, flags=flags, immediate=dims, items=items + at)


def _store(t: Translator, i: Instruction, dims: int, count: int, flags: int) -> Row:
    reduces = i.parts[1] == "reduce"
    known(i, _COMMON | _STORE | ({"reduce", *REDUCTIONS} if reduces else set()))
    how = [REDUCTIONS[part] for part in i.parts if part in REDUCTIONS]
    if len(how) != int(reduces):
        raise not_modelled(i, "its operation")
    if len(i.operands) != 2 + ("L2::cache_hint" in i.parts):
        raise not_modelled(i, f"{len(i.operands)} operands")
    address, at = _map(t, i, 0, count)
    items = operand(t, i.operands[1]) + address + number(0) * 2 + at
    return Row(
        y.X_TENSOR_COPY, s.STORE, type=how[0] if how else 0, flags=flags, immediate=dims,
        items=items,
    )  # fmt: skip
