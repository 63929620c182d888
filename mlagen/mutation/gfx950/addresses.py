"""The lane addresses of the setup, evaluated for every thread.

The setup computes with bit operations on the thread's number. A value here is what one register
holds in all threads of a workgroup, with the lines that made it, so that a changed line can be
asked which addresses it changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.mutation.gfx950.listing import InstructionLine

Words = npt.NDArray[np.uint32]
_ITEM_MASK = 0x3FF  # v0 holds the work-item ids of x, y, z, ten bits each

_BINARY: dict[str, Callable[[Words, Words], Words]] = {
    "v_and_b32": np.bitwise_and,
    "v_or_b32": np.bitwise_or,
    "v_xor_b32": np.bitwise_xor,
    "v_lshlrev_b32": lambda by, value: np.left_shift(value, by & np.uint32(31)),
    "v_lshrrev_b32": lambda by, value: np.right_shift(value, by & np.uint32(31)),
    "v_add_u32": np.add,
    "v_sub_u32": np.subtract,
    "v_mul_lo_u32": np.multiply,
}
_MOVES = ("v_mov_b32", "s_mov_b32")
_OPERAND = re.compile(r"[vas]\[[^\]]*\]|[^\s,\[\]]+")
_DESTINATION = re.compile(r"([vas])\[([^:\]]*)(?::[^\]]*)?\]")


@dataclass(frozen=True, eq=False)
class KnownRegister:
    """One register in all threads, and the numbers of the lines it was computed by."""

    words: Words
    lines: frozenset[int]


def operands(code: str) -> list[str]:
    """The operands of an instruction: registers as `v[T+1]`, numbers as they are written."""
    return _OPERAND.findall(code.partition(" ")[2])


def evaluate(
    lines: Iterable[InstructionLine], threads: int, changed: Mapping[int, str] | None = None
) -> dict[str, KnownRegister]:
    """What the registers hold after straight-line code, `changed` lines replaced.

    A register that something else than bit operations on the thread's number wrote is not in the
    result. `v_and_b32 v[x], 0x3ff, v[x]` is where the thread's number comes from.
    """
    changed = changed or {}
    known: dict[str, KnownRegister] = {}
    for line in lines:
        code = changed.get(line.number, line.code)
        given = operands(code)
        if not given:
            continue
        destination, sources = given[0], given[1:]
        mnemonic = code.partition(" ")[0]
        value: KnownRegister | None = None
        if mnemonic == "v_and_b32" and sources == [hex(_ITEM_MASK), destination]:
            value = KnownRegister(np.arange(threads, dtype=np.uint32), frozenset())
        elif mnemonic in _BINARY and len(sources) == 2:
            left, right = (_source(known, source, threads) for source in sources)
            if left is not None and right is not None:
                words = _BINARY[mnemonic](left.words, right.words)
                value = KnownRegister(words, left.lines | right.lines | {line.number})
        elif mnemonic in _MOVES and len(sources) == 1:
            source = _source(known, sources[0], threads)
            value = source and KnownRegister(source.words, source.lines | {line.number})
        if value is not None:
            known[destination] = value
        elif _DESTINATION.fullmatch(destination):
            known.pop(destination, None)
    return known


def number(text: str) -> int | None:
    """An integer literal, or None for anything else."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _source(known: Mapping[str, KnownRegister], text: str, threads: int) -> KnownRegister | None:
    literal = number(text)
    if literal is not None:
        return KnownRegister(np.full(threads, literal & 0xFFFFFFFF, np.uint32), frozenset())
    return known.get(text)
