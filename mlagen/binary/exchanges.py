"""Which lane each lane of an instruction takes its data from.

Sources: CDNA4 ISA guide, DPP_CTRL, DS_SWIZZLE_B32, DS_BPERMUTE_B32 and V_PERMLANE*_SWAP.
"""

from __future__ import annotations

from mlagen.binary.effects import PERMLANE
from mlagen.binary.instruction import MachineInstruction
from mlagen.targets.gfx950.limits import GFX950

LANES = range(GFX950.wave_size)
NONE = -1  # takes nothing: there is no such lane, or the instruction leaves the lane out
BY_ADDRESS = "ds_bpermute_b32"
_ROW = 16  # lanes
_QUAD_MASK = 0x8000  # of a swizzle's offset


def takes_by_address(ins: MachineInstruction) -> bool:
    """Whether an address says which lane each lane takes from (`by_address`)."""
    return ins.mnemonic == BY_ADDRESS


def by_address(address: int, offset: int) -> int:
    """The lane that ds_bpermute_b32 takes from."""
    return (address + offset) // 4 % GFX950.wave_size


def fixed_sources(ins: MachineInstruction) -> tuple[int, ...] | None:
    """The lane that each of the 64 takes from, where the instruction itself says it; None for one
    that moves nothing between lanes, or does so by an address."""
    if ins.encoding.endswith("_DPP"):
        rows, banks = ins.modifier("row_mask"), ins.modifier("bank_mask")
        control = ins.modifier("dpp")
        return tuple(
            _dpp_source(control, lane)
            if rows >> lane // _ROW & 1 and banks >> lane % _ROW // 4 & 1
            else NONE
            for lane in LANES
        )
    if ins.mnemonic == "ds_swizzle_b32":
        return tuple(_swizzle_source(offset_of(ins), lane) for lane in LANES)
    if ins.mnemonic in PERMLANE:
        return tuple(lane ^ (32 if "permlane32" in ins.mnemonic else _ROW) for lane in LANES)
    return None


def off_lane_gives(ins: MachineInstruction) -> str:
    """What a lane gets from one that is off, in words."""
    if not ins.encoding.endswith("_DPP") or ins.modifier("bc"):
        return "it gets 0"
    return "it is left as it was"


def offset_of(ins: MachineInstruction) -> int:
    """The 16 bits of offset of an exchange through the LDS unit."""
    return ins.modifier("offset0") | ins.modifier("offset1") << 8


def _dpp_source(control: int, lane: int) -> int:
    row, inside, amount = lane - lane % _ROW, lane % _ROW, control & 15
    if control < 0x100:  # quad_perm
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    if control < 0x110:  # row_shl
        return lane + amount if inside + amount < _ROW else NONE
    if control < 0x120:  # row_shr
        return lane - amount if inside >= amount else NONE
    if control < 0x130:  # row_ror
        return row + (inside - amount) % _ROW
    if 0x150 <= control < 0x160:  # row_newbcast
        return row + amount
    whole = {
        0x130: lane + 1 if lane + 1 in LANES else NONE,  # wave_shl
        0x134: (lane + 1) % len(LANES),  # wave_rol
        0x138: lane - 1 if lane else NONE,  # wave_shr
        0x13C: (lane - 1) % len(LANES),  # wave_ror
        0x140: row + _ROW - 1 - inside,  # row_mirror
        0x141: lane & ~7 | 7 - lane % 8,  # row_half_mirror
        0x142: row - 1 if row else NONE,  # row_bcast15
        0x143: 31 if lane >= 32 else NONE,  # row_bcast31
    }
    return whole.get(control, NONE)


def _swizzle_source(offset: int, lane: int) -> int:
    if offset & _QUAD_MASK:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    inside = (lane & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
    return lane & ~31 | inside & 31
