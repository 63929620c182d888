"""Global wave sync (GWS) instructions with an operand, which tinygrad's decoder leaves out.

Opcodes: CDNA3 ISA guide, DS; the operand's place is what LLVM's assembler sets (held by a test).
"""

from __future__ import annotations

FORM = "DS"
_MARK, _MARK_AT = 0b110110, 26
_NAMES = {153: "ds_gws_init", 155: "ds_gws_sema_br", 157: "ds_gws_barrier"}
_FIELDS = {"offset0": (0, 8), "offset1": (8, 8), "gds": (16, 1), "addr": (32, 8)}


def is_global_sync(word: int) -> bool:
    """Whether an instruction that begins with this dword is one of them."""
    return word >> _MARK_AT == _MARK and word >> 17 & 0xFF in _NAMES


def global_sync(code: int) -> tuple[str, dict[str, int], dict[str, int]]:
    """Name, fields and widths of operands in dwords of the instruction in 64 bits."""
    fields = {key: code >> low & (1 << bits) - 1 for key, (low, bits) in _FIELDS.items()}
    return _NAMES[code >> 17 & 0xFF], fields, {"addr": 1}
