"""Bytes of shared memory that a wgmma's descriptor makes it read.

Descriptor fields and the canonical layouts: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix
Instructions", shared-memory matrix layout and matrix descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass

# Bits 62-63 of the descriptor -> bytes of the swizzle.
SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded matrix descriptor; offsets and address in bytes."""

    address: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int  # bytes; 16 means none

    @staticmethod
    def decode(value: int) -> Descriptor:
        """From the 64 bits."""
        return Descriptor(
            address=(value & 0x3FFF) << 4,
            leading=(value >> 16 & 0x3FFF) << 4,
            stride=(value >> 32 & 0x3FFF) << 4,
            base_offset=value >> 49 & 7,
            swizzle=SWIZZLES[value >> 62 & 3],
        )

    def misaligned(self) -> str:
        """Why hardware would swizzle other bits than the tile's, or ""."""
        if self.swizzle == 16 or self.base_offset:
            return ""
        atom = 8 * self.swizzle
        if self.address % atom >= self.swizzle:
            return (
                f"the {self.swizzle}-byte swizzle repeats every {atom} bytes, and"
                f" {self.address:#x} is {self.address % atom} bytes into it"
            )
        return ""


def ranges(
    descriptor: Descriptor, *, extent: int, depth_bytes: int, mn_major: bool, element_bytes: int
) -> list[tuple[int, int]]:
    """(start, bytes) pieces that `extent` rows (M or N) and `depth_bytes` of K read.

    A swizzled piece is taken whole (8 rows of the swizzle's width): the columns that one k-step
    reads are spread over it.
    """
    width = descriptor.swizzle
    found: list[tuple[int, int]] = []
    if width == 16:
        # Core matrices of 8 x 16 bytes.
        outer = extent // 8 if not mn_major else extent * element_bytes // 16
        inner = depth_bytes // 16 if not mn_major else max(depth_bytes // element_bytes // 8, 1)
        for i in range(outer):
            for j in range(inner):
                start = descriptor.address + i * descriptor.stride + j * descriptor.leading
                found.append((start, 128))
        return merge(found)
    atom = 8 * width
    if not mn_major:
        base = descriptor.address - descriptor.address % atom
        for i in range(extent // 8):
            found.append((base + i * descriptor.stride, atom))
        return merge(found)
    base = descriptor.address - descriptor.address % atom
    across = max(extent * element_bytes // width, 1)
    down = max(depth_bytes // element_bytes // 8, 1)
    for i in range(across):
        for j in range(down):
            found.append((base + i * descriptor.leading + j * descriptor.stride, atom))
    return merge(found)


def merge(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring pieces as one."""
    found: list[tuple[int, int]] = []
    for start, size in sorted(pieces):
        if found and start <= found[-1][0] + found[-1][1]:
            first, length = found[-1]
            found[-1] = (first, max(length, start + size - first))
        else:
            found.append((start, size))
    return found
