"""The 64-byte kernel descriptor: resources, modes and the initial register state it asks for.

Bit positions: LLVM AMDGPUUsage, "Kernel Descriptor" and the gfx90a+ forms of
COMPUTE_PGM_RSRC1/2/3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mlagen.errors import BinaryError


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """Decoded kernel descriptor. Register counts are per wave, sizes in bytes."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry_offset: int
    vgprs: int
    """Allocated registers a lane, arch + acc; a multiple of 8."""
    accum_offset: int
    """Physical number of a0."""
    sgprs: int
    user_sgprs: tuple[tuple[str, int], ...]
    """(name, count) in register order, from s0 on: what the loader must set up."""
    workgroup_ids: tuple[bool, bool, bool]
    workgroup_info: bool
    private_wave_offset: bool
    workitem_id: int
    """0: x; 1: x and y; 2: x, y and z, packed 10 bits each in v0."""
    round_f32: int
    round_f16_64: int
    denormals_f32: int
    """0 flushes inputs and outputs, 3 keeps both."""
    denormals_f16_64: int
    dx10_clamp: bool
    ieee: bool
    fp16_overflow_clamp: bool
    kernarg_preload: int
    kernarg_preload_offset: int
    """Both in dwords of the argument segment."""
    tg_split: bool


_USER_SGPRS = (  # (property bit, name, SGPRs) in allocation order (LLVM AMDGPUUsage)
    (0, "private_segment_buffer", 4),
    (1, "dispatch_ptr", 2),
    (2, "queue_ptr", 2),
    (3, "kernarg_segment_ptr", 2),
    (4, "dispatch_id", 2),
    (5, "flat_scratch_init", 2),
    (6, "private_segment_size", 1),
)


def read_descriptor(data: bytes, name: str) -> KernelDescriptor:
    """Decode 64 bytes; `name` is the kernel's, for messages."""
    if len(data) < 64:
        raise BinaryError(f"the descriptor of kernel {name} is truncated: {len(data)} of 64 bytes")
    lds, scratch, kernarg = struct.unpack_from("<III", data, 0)
    (entry,) = struct.unpack_from("<q", data, 16)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
    if properties >> 10 & 1:
        raise BinaryError(f"kernel {name} asks for wave32, which gfx950 does not have")
    users = [(label, count) for bit, label, count in _USER_SGPRS if properties >> bit & 1]
    declared = rsrc2 >> 1 & 0x1F
    preload_dwords = preload & 0x7F
    if preload_dwords:
        users.append(("kernarg_preload", preload_dwords))
    if sum(count for _, count in users) > declared:
        raise BinaryError(
            f"the descriptor of kernel {name} enables {sum(c for _, c in users)} user SGPRs but "
            f"declares {declared}"
        )
    return KernelDescriptor(
        lds_bytes=lds,
        scratch_bytes=scratch,
        kernarg_bytes=kernarg,
        entry_offset=entry,
        vgprs=((rsrc1 & 0x3F) + 1) * 8,
        accum_offset=((rsrc3 & 0x3F) + 1) * 4,
        sgprs=((rsrc1 >> 6 & 0xF) // 2 + 1) * 16,
        user_sgprs=tuple(users),
        workgroup_ids=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
        workgroup_info=bool(rsrc2 >> 10 & 1),
        private_wave_offset=bool(rsrc2 & 1),
        workitem_id=rsrc2 >> 11 & 3,
        round_f32=rsrc1 >> 12 & 3,
        round_f16_64=rsrc1 >> 14 & 3,
        denormals_f32=rsrc1 >> 16 & 3,
        denormals_f16_64=rsrc1 >> 18 & 3,
        dx10_clamp=bool(rsrc1 >> 21 & 1),
        ieee=bool(rsrc1 >> 23 & 1),
        fp16_overflow_clamp=bool(rsrc1 >> 26 & 1),
        kernarg_preload=preload_dwords,
        kernarg_preload_offset=preload >> 7,
        tg_split=bool(rsrc3 >> 16 & 1),
    )
