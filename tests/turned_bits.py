"""A bit of an encoded gfx950 instruction turned: what comparing object and text does not tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen import encoding
from mlagen.targets.gfx950.codegen.agree import _compared

# Bits that say nothing, where the assembler's choice is free: OP_SEL_HI of a source that is not
# there, ACC of moves between files.
IDLE = {
    **dict.fromkeys(("v_accvgpr_read_b32", "v_accvgpr_write_b32"), (14, 59, 60)),
    **dict.fromkeys(("v_pk_add_f32", "v_pk_mul_f32"), (14,)),
}


def missed_bits(instruction: Any, raw: bytes) -> Iterator[tuple[str, int]]:
    """The instruction's text and each bit of `raw` whose turning is not told. Where a branch goes
    is left out: that takes the whole object."""
    for bit in range(8 * len(raw)):
        if bit in IDLE.get(instruction.mnemonic, ()) or (instruction.target and bit < 16):
            continue
        turned = bytearray(raw)
        turned[bit // 8] ^= 1 << bit % 8
        if encoding.size_of(bytes(turned) + bytes(4), 0) != len(raw):
            continue  # all that follows stands elsewhere
        with suppress(TemplateError):
            _compared(instruction, bytes(turned), "schedule.py")
            yield instruction.text, bit
