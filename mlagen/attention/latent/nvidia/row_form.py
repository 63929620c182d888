"""How rows of e4m3 lie in memory, for a kernel that reads them to make bf16 of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.attention.latent.nvidia.sizes import COLUMNS

LANES = 4  # threads that read 64 columns of a row together, 16 bytes each
WORD = 4  # bytes


@dataclass(frozen=True, slots=True)
class RowForm:
    """A row's first `latent` columns are e4m3, `rope` more are bf16 at byte `rope_at`.

    `scales`: "none", or one for all (the host's numbers have it); "key": one a row, which
    multiplies S and P; "blocks": one for each `block` columns of e4m3, which multiplies them before
    they are rounded to bf16. They are fp32, in a tensor of their own, or in the row at byte
    `scales_at`, where with `powers` they are ue8m0, four a word. With `paged_exponents` they are
    ue8m0 behind all rows of a page, so many bytes a row.
    """

    latent: int
    rope: int = 0
    rope_at: int = 0
    scales: Literal["none", "key", "blocks"] = "none"
    block: int = 0
    scales_at: int | None = None
    paged_exponents: int = 0
    powers: bool = False

    @property
    def boxes(self) -> int:
        """Tiles of 64 columns that are made of e4m3."""
        return self.latent // COLUMNS

    @property
    def rope_boxes(self) -> int:
        return self.rope // COLUMNS

    def byte_of(self, column: int) -> int:
        """Where a column lies in a row."""
        return column if column < self.latent else self.rope_at + 2 * (column - self.latent)

    @property
    def row_bytes(self) -> int:
        """Bytes from a row's first number to behind its last one."""
        return max(self.latent, self.rope_at + 2 * self.rope)

    @property
    def words(self) -> int:
        """Registers that a thread holds a row's numbers in."""
        return 4 * self.boxes + 8 * self.rope_boxes

    @property
    def blocks(self) -> int:
        """Scales of a row."""
        return -(-self.latent // self.block) if self.scales == "blocks" else 0

    @property
    def fine(self) -> bool:
        """Whether fp32 scales are of fewer columns than 128."""
        return 0 < self.block < 2 * COLUMNS and not (self.paged_exponents or self.powers)

    @property
    def held_scales(self) -> int:
        """Registers that a thread holds a row's scales in: four threads share them."""
        return -(-self.blocks // (LANES * (WORD if self.powers else 1)))
