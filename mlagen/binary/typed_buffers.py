"""Typed buffer accesses (MTBUF), which tinygrad's decoder leaves out.

Bit layout: CDNA3 and CDNA4 ISA guides, MTBUF; where they say nothing (SC1, NT, ACC), what LLVM's
assembler sets (held by a test).
"""

from __future__ import annotations

FORM = "MTBUF"
_MARK, _MARK_AT = 0b111010, 26
_NAMES = tuple(
    f"tbuffer_{access}_format_{half}{parts}"
    for half in ("", "d16_")
    for access in ("load", "store")
    for parts in ("x", "xy", "xyz", "xyzw")
)
_FIELDS = {  # name: (lowest bit, bits)
    "offset": (0, 12),
    "offen": (12, 1),
    "idxen": (13, 1),
    "sc0": (14, 1),
    "format": (19, 7),
    "vaddr": (32, 8),
    "vdata": (40, 8),
    "srsrc": (48, 5),
    "sc1": (53, 1),
    "nt": (54, 1),
    "acc": (55, 1),
    "soffset": (56, 8),
}


def is_typed_buffer(word: int) -> bool:
    """Whether an instruction that begins with this dword is one of them."""
    return word >> _MARK_AT & 0x3F == _MARK


def typed_buffer(code: int) -> tuple[str, dict[str, int], dict[str, int]]:
    """Name, fields and widths of operands in dwords of the instruction in 64 bits."""
    name = _NAMES[code >> 15 & 15]
    fields = {key: code >> low & (1 << bits) - 1 for key, (low, bits) in _FIELDS.items()}
    parts = len(name.rpartition("_")[2])
    data = (parts + 1) // 2 if "_d16_" in name else parts
    return name, fields, {"vdata": data, "vaddr": 1, "srsrc": 4, "soffset": 1}
