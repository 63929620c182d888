"""Mutants of the LDS layout, on the producer's or the consumer's side alone.

The producer of a tile is the DMA: its lanes' global byte offsets and its M0 base. The consumer is
the LDS read: its lanes' addresses and its offset. A bit of a mask, a shift or a constant in the
lane addresses is flipped, or one base or offset is one slot off; the other side keeps the layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from mlagen.errors import UnsupportedError
from mlagen.mutation.gfx950.addresses import evaluate, number, operands
from mlagen.mutation.gfx950.listing import InstructionLine, Listing
from mlagen.mutation.gfx950.mutant import Mutant, replaced

_THREAD_BITS = 9  # 512 threads
_SETUP = "setup"


def swizzle_mutants(listing: Listing, threads: int) -> Iterator[Mutant]:
    """Bits of the lane addresses, then slots of single LDS reads and DMAs."""
    for role in dict.fromkeys(line.role for line in listing.lines.values()):
        own = [line for line in listing.lines.values() if line.role == role]
        yield from _bit_mutants(listing, own, threads)
    yield from _slot_mutants(listing)


# ---- bits ---------------------------------------------------------------------------------------


def _bit_mutants(
    listing: Listing, code: Sequence[InstructionLine], threads: int
) -> Iterator[Mutant]:
    """Of `code`: what all roles share, or that of one."""
    setup = [line for line in code if line.section == _SETUP]
    values = evaluate(setup, threads)
    users: dict[str, dict[str, str]] = {"producer": {}, "consumer": {}}  # by address register
    for line in code:
        if side := _side(line):
            users[side][_address(line)] = line.mnemonic
    made = {side: {r: values[r] for r in names if r in values} for side, names in users.items()}
    lines = {
        side: {line for value in found.values() for line in value.lines}
        for side, found in made.items()
    }
    shared = lines["producer"] & lines["consumer"]  # a change there would move both sides
    for side, own in lines.items():
        for line in setup:
            if line.number not in own - shared:
                continue
            for what, changed in _variants(line):
                after = evaluate(setup, threads, {line.number: changed})
                moved = [
                    register
                    for register, value in made[side].items()
                    if not np.array_equal(value.words, after[register].words)
                ]
                if moved:
                    told, touches = (
                        f"{what} for {' and '.join(moved)}",
                        (users[side][r] for r in moved),
                    )
                    yield replaced(listing, "swizzle", f"bit of the {side}", told, line, changed,
                                   touches=" ".join(dict.fromkeys(touches)))  # fmt: skip


def _side(line: InstructionLine) -> str:
    if line.mnemonic.startswith("ds_read"):
        return "consumer"
    if line.mnemonic.startswith("buffer_load") and line.code.endswith(" lds"):
        return "producer"
    return ""


def _address(line: InstructionLine) -> str:
    return operands(line.code)[1 if line.mnemonic.startswith("ds_") else 0]


def _variants(line: InstructionLine) -> Iterator[tuple[str, str]]:
    """(what changes, code) of each way to flip a bit of an instruction's constant."""
    destination, *sources = operands(line.code)
    constant = number(sources[0])
    if constant is None or line.mnemonic == "s_mov_b32":
        return  # a row's bytes: no part of the layout in LDS
    if line.mnemonic == "v_and_b32":
        flipped = [constant ^ 1 << bit for bit in range(_THREAD_BITS)]
    elif line.mnemonic in ("v_lshlrev_b32", "v_lshrrev_b32"):
        flipped = [constant ^ 1 << bit for bit in range(max(constant.bit_length(), 1))]
    elif line.mnemonic == "v_xor_b32":
        flipped = [constant ^ 1 << bit for bit in range(14)]  # the bytes of a 16 KiB tile
    else:
        return
    for value in flipped:
        code = f"{line.mnemonic} {', '.join([destination, str(value), *sources[1:]])}"
        yield f"{line.mnemonic} {constant} -> {value}", code


# ---- slots --------------------------------------------------------------------------------------


def _slot_mutants(listing: Listing) -> Iterator[Mutant]:
    """Every LDS read's offset and every M0 base, one slot of its own ring off."""
    bases = {line.number: base for line in listing.lines.values() if (base := _base(line))}
    reach: dict[tuple[str, str], list[int]] = {}
    for at, (side, _, value) in bases.items():
        reach.setdefault((side, _ring(listing.lines[at])), []).append(value)
    for at, (side, form, value) in bases.items():
        line = listing.lines[at]
        ring = _ring(line)
        if ring not in listing.slots:
            raise UnsupportedError(f"line {at}: {line.code}: of no ring of the LDS map")
        slots, size = listing.slots[ring]
        used = reach[side, ring]
        fits = [v for v in (value + size, value - size) if min(used) <= v <= max(used)]
        if slots == 1 or not fits:
            continue
        old, new = form.format(value), form.format(fits[0])
        what, code = f"{ring}: {old} -> {new}", f"{line.code.removesuffix(old)}{new}"
        yield replaced(listing, "swizzle", f"slot of the {side}", what, line, code, touches=ring)


def _base(line: InstructionLine) -> tuple[str, str, int] | None:
    """(side, how the text spells it, bytes) of a line that says where a tile lies in LDS."""
    if line.mnemonic.startswith("ds_read"):
        offset = re.search(r" offset:(\d+)$", line.code)
        return ("consumer", " offset:{}", int(offset[1])) if offset else None
    base = re.fullmatch(r"s_add_u32 m0, s\[\w+\], (\d+)", line.code)
    return ("producer", ", {}", int(base[1])) if base else None


def _ring(line: InstructionLine) -> str:
    named = re.match(r"\w+\((\w+), ", line.operation)
    return named[1] if named else ""
