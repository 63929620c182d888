"""How a tile lies in LDS, as data: sub-blocks and swizzles that are functions on address bits.

Every layout here is linear over bits (XOR of bit images), so three things follow mechanically: a
proof that it is a bijection, the lane-address instructions that realise it, and the bank phases
that reading it costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.limits import GFX950

# Lanes served together by one LDS cycle, and the banks they share.
# Source: HipKittens, analysis of MI35x LDS phases (ds_read_b128: 4 phases of 16 lanes; ds_read_b64:
# 2 phases of 32 lanes; 64 banks of 4 bytes). The transposing reads are not measured anywhere; the
# phases of ds_read_b64 are assumed for them.
_B128_HALF = (
    (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27),
    (4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31),
)
READ_PHASES: dict[int, tuple[tuple[int, ...], ...]] = {
    16: _B128_HALF + tuple(tuple(lane + 32 for lane in phase) for phase in _B128_HALF),
    8: (tuple(range(32)), tuple(range(32, 64))),
}
BANKS = GFX950.lds_banks
BANK_BYTES = 4
DMA_BLOCK = 1024  # bytes that one LDS-DMA instruction of a wave writes: 64 lanes x 16


class TileLayout(Protocol):
    """How a tile of `rows` x `row_bytes` lies in `size` bytes of LDS."""

    @property
    def rows(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of one tile, padding included."""

    @property
    def block_stride(self) -> int:
        """Bytes from one block of 1024 that a wave fetches at once to the next."""

    @property
    def chunk_bits(self) -> int:
        """log2 of the bytes that stay contiguous in LDS."""

    def offset(self, row: int, byte: int) -> int:
        """LDS byte offset inside the slot of byte `byte` of row `row`."""

    def source(self, offset: int) -> tuple[int, int]:
        """(row, byte) stored at LDS offset `offset` (a multiple of the contiguous chunk)."""

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Xor:
    """Swizzle: address bits `source` are XORed into bits `target` (pairwise, low bit first)."""

    source: tuple[int, ...]
    target: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ScheduleError(
                f"swizzle of bits {self.source} into {self.target}: {len(self.source)} source bits "
                f"for {len(self.target)} targets"
            )
        if set(self.source) & set(self.target):
            raise ScheduleError(f"swizzle {self}: a bit is both source and target, not invertible")

    @classmethod
    def of(cls, text: str) -> Xor | None:
        """The swizzle that a knob names: "8-9 into 4-5" XORs bit 8 into 4 and 9 into 5, "9-8 into
        4-5" 9 into 4 and 8 into 5. None for "none"."""
        if text == "none":
            return None
        found = re.fullmatch(r"(\d+)-(\d+) into (\d+)-(\d+)", text)
        if found is None:
            raise ScheduleError(
                f"swizzle {text!r}",
                hint='"none", or BITS into BITS: "8-9 into 4-5", "9-8 into 4-5"',
            )
        first, last, low, high = map(int, found.groups())
        return cls(_bits(first, last), _bits(low, high))

    def __call__(self, offset: int) -> int:
        for source, target in zip(self.source, self.target, strict=True):
            offset ^= ((offset >> source) & 1) << target
        return offset

    def __str__(self) -> str:
        pairs = zip(self.source, self.target, strict=True)
        return ", ".join(f"bit{target} ^= bit{source}" for source, target in pairs)


def _bits(first: int, last: int) -> tuple[int, ...]:
    step = 1 if last >= first else -1
    return tuple(range(first, last + step, step))


@dataclass(frozen=True)
class Subtiled:
    """A tile of `rows` x `row_bytes` cut into sub-blocks of `sub_rows` x `sub_bytes`.

    Sub-blocks are stored one after another, row-block by row-block; inside one, rows are stored
    one after another and `swizzle` permutes the bytes. All sizes are powers of two.
    """

    rows: int
    row_bytes: int
    sub_rows: int
    sub_bytes: int
    swizzle: Xor | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "row_bytes", "sub_rows", "sub_bytes"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise ScheduleError(f"layout {name}={value} is not a power of two")
        if self.rows % self.sub_rows or self.row_bytes % self.sub_bytes:
            raise ScheduleError(
                f"a tile of {self.rows} x {self.row_bytes} bytes does not divide into sub-blocks "
                f"of {self.sub_rows} x {self.sub_bytes} bytes"
            )
        if self.swizzle and max(self.swizzle.source + self.swizzle.target) >= (
            (self.sub_rows * self.sub_bytes).bit_length() - 1
        ):
            raise ScheduleError(f"swizzle {self.swizzle} reaches beyond the sub-block")
        chunk = 1 << self.chunk_bits
        if sorted(self._inverse) != list(range(0, self.size, chunk)):
            raise ScheduleError(f"layout {self} is not a bijection")

    @property
    def size(self) -> int:
        """Bytes of one tile."""
        return self.rows * self.row_bytes

    @property
    def block_stride(self) -> int:
        """Blocks of 1024 bytes lie one after another."""
        return DMA_BLOCK

    def offset(self, row: int, byte: int) -> int:
        """LDS byte offset inside the slot of byte `byte` of row `row`."""
        block = row // self.sub_rows * (self.row_bytes // self.sub_bytes) + byte // self.sub_bytes
        inner = row % self.sub_rows * self.sub_bytes + byte % self.sub_bytes
        if self.swizzle:
            inner = self.swizzle(inner)
        return block * self.sub_rows * self.sub_bytes + inner

    @cached_property
    def _inverse(self) -> dict[int, tuple[int, int]]:
        chunk = 1 << self.chunk_bits
        return {
            self.offset(row, byte): (row, byte)
            for row in range(self.rows)
            for byte in range(0, self.row_bytes, chunk)
        }

    @property
    def chunk_bits(self) -> int:
        """log2 of the bytes that stay contiguous in LDS (no swizzle bit is below it)."""
        limit = self.sub_bytes.bit_length() - 1
        if self.swizzle:
            limit = min((limit, *self.swizzle.target, *self.swizzle.source))
        return min(limit, 4)

    def source(self, offset: int) -> tuple[int, int]:
        """(row, byte) stored at LDS offset `offset` (a multiple of the contiguous chunk)."""
        return self._inverse[offset]

    def describe(self) -> str:
        text = f"{self.sub_rows}x{self.sub_bytes} B sub-blocks"
        return f"{text}, {self.swizzle}" if self.swizzle else text


@dataclass(frozen=True)
class Padded:
    """A tile of `rows` x `row_bytes` in blocks of 1024 bytes that start `stride` bytes apart.

    Rows whose numbers are equal modulo `spread` share a block. Rows r and r + spread / 2 lie in
    neighbouring blocks and rows r and r + 1 two blocks apart, so that a padding of 16 bytes moves
    the rows of one transposing read by 32 bytes each, which is what a lane pair fetches.
    """

    rows: int
    row_bytes: int
    spread: int
    stride: int

    def __post_init__(self) -> None:
        if self.row_bytes > DMA_BLOCK or DMA_BLOCK % self.row_bytes:
            raise ScheduleError(f"rows of {self.row_bytes} bytes do not fill {DMA_BLOCK} bytes")
        if self.rows % (self.spread * self.block_rows):
            raise ScheduleError(
                f"{self.rows} rows do not divide into {self.spread} blocks of {self.block_rows}"
            )
        if self.stride < DMA_BLOCK or self.stride % 16:
            raise ScheduleError(f"a stride of {self.stride} is not {DMA_BLOCK} + a multiple of 16")

    @property
    def block_rows(self) -> int:
        """Rows in a block."""
        return DMA_BLOCK // self.row_bytes

    @property
    def size(self) -> int:
        """Bytes of one tile, padding included."""
        return self.rows // self.block_rows * self.stride

    @property
    def block_stride(self) -> int:
        """Bytes from one block to the next."""
        return self.stride

    @property
    def chunk_bits(self) -> int:
        """log2 of the bytes that stay contiguous and aligned in LDS."""
        return min(4, self.row_bytes.bit_length() - 1)

    def offset(self, row: int, byte: int) -> int:
        """LDS byte offset inside the slot of byte `byte` of row `row`."""
        group, inside = divmod(row, self.spread * self.block_rows)
        place, number = divmod(inside, self.spread)
        half, low = divmod(number, self.spread // 2)
        block = 2 * low + half
        return (group * self.spread + block) * self.stride + place * self.row_bytes + byte

    def source(self, offset: int) -> tuple[int, int]:
        """(row, byte) stored at LDS offset `offset` (padding holds nothing)."""
        number, inside = divmod(offset, self.stride)
        group, block = divmod(number, self.spread)
        place, byte = divmod(inside, self.row_bytes)
        row = block // 2 + block % 2 * (self.spread // 2)
        return (group * self.block_rows + place) * self.spread + row, byte

    def describe(self) -> str:
        return f"blocks of {self.block_rows} rows, {self.spread} apart, every {self.stride} bytes"


@dataclass(frozen=True, slots=True)
class BitMap:
    """A function that is linear over bits: XOR of `images[k]` over the set bits k of its input,
    XOR `constant`; with `additive` their sum."""

    images: tuple[int, ...]
    constant: int = 0
    additive: bool = False

    @classmethod
    def of(cls, function: Callable[[int], int], bits: int, *, what: str = "map") -> BitMap:
        """The map equal to `function` on 0..2**bits-1; ScheduleError if neither an XOR nor a sum
        over the bits is."""
        wanted = [function(value) for value in range(1 << bits)]
        constant, values = wanted[0], [wanted[1 << bit] for bit in range(bits)]
        xor = cls(tuple(value ^ constant for value in values), constant)
        if xor.table() == wanted:
            return xor
        if all(value >= constant for value in values):
            total = cls(tuple(value - constant for value in values), constant, additive=True)
            if total.table() == wanted:
                return total
        wrong = next(at for at, value in enumerate(xor.table()) if value != wanted[at])
        raise ScheduleError(f"{what} is not linear over bits at {wrong}")

    def table(self) -> list[int]:
        """What it makes of 0, 1, ... up to the last number of its bits."""
        made = [self.constant]
        for image in self.images:
            made += [value + image if self.additive else value ^ image for value in made]
        return made

    def __call__(self, value: int) -> int:
        result = self.constant
        for bit, image in enumerate(self.images):
            if value >> bit & 1:
                result = result + image if self.additive else result ^ image
        return result

    @property
    def operation(self) -> str:
        """The vector instruction that joins its fields."""
        return "v_add_u32" if self.additive else "v_xor_b32"

    @property
    def span(self) -> int:
        """OR of all images: the bits that depend on the input."""
        result = 0
        for image in self.images:
            result |= image
        return result

    def moves(self) -> tuple[tuple[int, int], ...]:
        """The map as shifted fields, joined by its operation: (input mask, left shift; negative =
        right)."""
        fields: dict[int, int] = {}
        for bit, image in enumerate(self.images):
            for target in range(image.bit_length()):
                if image >> target & 1:
                    fields[target - bit] = fields.get(target - bit, 0) | 1 << bit
        return tuple((mask, shift) for shift, mask in sorted(fields.items(), reverse=True))


def bank_cycles(addresses: Sequence[int], width: int) -> tuple[int, int]:
    """(cycles, conflict-free cycles) of one LDS read of `width` bytes a lane at `addresses`.

    Two lanes of a phase conflict when they touch the same bank at different dwords.
    """
    phases = READ_PHASES[width]
    total = 0
    for phase in phases:
        dwords: dict[int, set[int]] = {}
        for lane in phase:
            for dword in range(width // BANK_BYTES):
                index = addresses[lane] // BANK_BYTES + dword
                dwords.setdefault(index % BANKS, set()).add(index)
        total += max(len(rows) for rows in dwords.values())
    return total, len(phases)
