"""Moves, vectors to wide registers and back, byte permutations, addresses, clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import give_way, place, program_row
from mlagen.emulator.ptx.values.lanes import LaneOperation, Lanes, numbered, operation, operations

# P_OP; numbers from COPY on are those of MOVES. P_IMM of CLOCK: how far to the right it is shifted;
# P_TYPE: the bits of its destination.
CLOCK, SLEEP, COPY = range(3)
_TICKS = 32  # that a look at the clock takes


def _prmt(t: Lanes, a: Any, b: Any, c: Any) -> Any:
    """Four bytes of the eight, by four bits each: the top one asks for the byte's sign."""
    both = t.b.or_(t.shl(t.resize(b, 64), 32), t.resize(a, 64))
    found = t.const(a, 0)
    for i in range(4):
        chosen = t.lshr(c, 4 * i)
        by = t.resize(t.shl(t.and_(chosen, 7), 3), 64)
        byte = t.and_(t.resize(t.b.lshr(both, by), 32), 255)
        sign = t.and_(t.b.neg(t.lshr(byte, 7)), 255)
        byte = t.b.select(t.compare("!=", t.and_(chosen, 8), 0), sign, byte)
        found = t.b.or_(found, t.shl(byte, 8 * i))
    return found


_MODES: dict[str, tuple[tuple[int, ...], ...]] = {  # by the low bits of c: bytes, the lowest first
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _prmt_mode(choices: tuple[tuple[int, ...], ...]) -> Callable[..., Any]:
    words = [sum(byte << 4 * i for i, byte in enumerate(choice)) for choice in choices]

    def build(t: Lanes, a: Any, b: Any, c: Any) -> Any:
        which = t.and_(c, 3)
        chosen = t.const(c, words[0])
        for number in (1, 2, 3):
            chosen = t.select(t.compare("==", which, number), words[number], chosen)
        return _prmt(t, a, b, chosen)

    return build


def _pack(width: int) -> Callable[..., Any]:
    def build(t: Lanes, *x: Any) -> Any:
        count = len(x)
        size = width // count
        found = t.const(t.resize(x[0], width), 0)
        for i, one in enumerate(x):
            low = t.and_(t.resize(one, width), (1 << size) - 1)
            found = t.b.or_(found, t.shl(low, size * i))
        return found

    return build


def _unpack(count: int) -> Callable[..., Any]:
    def build(t: Lanes, x: Any) -> Any:
        size = t.width(x) // count
        kept = max(size, 16)
        parts = (t.lshr(x, size * i) for i in range(count))
        return tuple(t.resize(t.and_(part, (1 << size) - 1), kept) for part in parts)

    return build


def _add_offset(t: Lanes, a: Any) -> Any:
    return t.b.add(a, t.word(y.P_IMM, a.type))


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}
    for width in (16, 32, 64):
        for count in (1, 2, 4):
            k = f"b{width} " * count
            made[f"mov{width}.{count}"] = operation(f"{k}= {k}", lambda t, *x: x)
    for width, count, part in ((64, 2, 32), (64, 4, 16), (32, 2, 16), (32, 4, 16), (16, 2, 16)):
        parts = f"b{part} " * count
        made[f"pack{width}.{count}"] = operation(f"b{width} = {parts}", _pack(width))
        made[f"unpack{width}.{count}"] = operation(f"{parts} = b{width}", _unpack(count))
    made["offset"] = operation("b64 = b64", _add_offset)
    made["prmt"] = operation("b32 = b32 b32 b32", _prmt)
    for name, choices in _MODES.items():
        made[f"prmt.{name}"] = operation("b32 = b32 b32 b32", _prmt_mode(choices))
    return made


MOVES = _table()
NUMBERS = numbered(MOVES)
_move = operations(MOVES)


@compiled
def read_clock(context: int, warp: int, p: int, mask: int) -> None:
    """A clock that goes on with every instruction, and whenever it is read."""
    ticks = load_i64(context, y.C_CLOCK) + _TICKS
    store_i64(context, y.C_CLOCK, ticks)
    now = (load_i64(context, y.C_EXECUTED) + ticks) >> load_i64(p, y.P_IMM)
    row = place(context, warp, load_i64(p, y.P_DST))
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            if load_i64(p, y.P_TYPE) == 64:
                store_i64(row, lane, now)
            else:
                store_u32(row, lane, uint32(now))


@compiled
def run_move(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits, but after nanosleep others go first."""
    p = program_row(context, row)
    which = load_i64(p, y.P_OP)
    if which >= COPY:
        registers = place(context, warp, 0)
        _move(which - COPY, p, registers, load_i64(context, y.C_CONSTANTS), mask)
    elif which == CLOCK:
        read_clock(context, warp, p, mask)
    else:
        give_way(context, warp)
    return y.NEXT
