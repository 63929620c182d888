"""The order of a kernel's arithmetic, which decides what its rounding oracle rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from mlagen.attention.latent.step_errors import cut_error, serial_error, step_error

LEAST_POWER = -64  # log2 of the power of two above a row's scale, at least
D_V = 512  # leading columns of a row that are its value

# What a manifest, which may be a stranger's, is held to.
Number = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Columns = Annotated[tuple[Number, ...], msgspec.Meta(min_length=1, max_length=64)]


@dataclass(frozen=True)
class Order:
    """How a kernel walks its keys, tile by tile, with a maximum M that moves at every tile.

    `tile`: keys of one. `first_columns`: the column that a tile's scores begin to add up at, before
    they go on with column 0; one for tile 0, tile 1, .., and so on from the first again.
    `late_columns`: for output columns from here on tiles go in pairs; the first tile's P is stored
    when the second one's maximum is known, and is added after it. Below, P is rounded at its own
    tile's maximum, and tiles are added in order. `boxes`: scores add up 64 columns after another
    in this order of them, and a step of 16 has four of each 16 of 64, as `added` says. `slack`: M
    is a whole number of log2 units, and moves only where a score is more than so many above it.
    Two such M differ by a power of two, which P, O and the row sum are exactly multiplied by: so it
    rounds the same, wherever M moves. `fine`: a row's first M is not a whole number but its first
    tile's largest score, rounded up to one in so many of a log2 unit, and M moves from there by
    whole numbers; so the largest P are near the upper end of an octave, where e4m3 is finest; 0:
    whole numbers. `depth`: columns, or keys, that one step of a product adds;
    `serial`: one by one, with a rounding each. `running`: how splits are merged (`latent.splits`).
    `bias`: P is exp2(S - M + bias), rounded to e4m3, and M is where the kernel has it; 0: P is
    rounded to bf16. Where rows have scales P times a scale is what is rounded to e4m3; so M follows
    scores times the power of two above their row's scale, or 2^LEAST_POWER. `kept`: bits that a
    step keeps of its largest term and of its sum, where these are few: then the rounding oracle
    follows its cuts (`latent.cut_sums`); 0: it bounds them. `scaled_columns`: so many columns share
    a scale that multiplies their sum, not each number, and P, which is rounded to f16 for them
    (`latent.scaled_columns`); 0: numbers are multiplied, or none has a scale. `halves`: P is
    rounded to f16, not to bf16. `lifted`: a row of Q is f16, times a power of two
    (`latent.scaled_columns`). `grained`: numbers of rows whose columns have scales are f16, in
    multiples of a power of two that a key has (`latent.grains`).
    """

    tile: Annotated[int, msgspec.Meta(ge=16, le=1024)]
    first_columns: Columns
    late_columns: Number
    boxes: Annotated[tuple[Number, ...], msgspec.Meta(max_length=64)] = ()
    slack: Number = 0
    depth: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    bias: Number = 0
    serial: bool = False
    running: bool = False
    kept: Number = 0
    scaled_columns: Number = 0
    fine: Number = 0
    halves: bool = False
    lifted: bool = False
    grained: bool = False

    @property
    def behind(self) -> int:
        """Log2 units that M, with its bias, may be away from the largest score, rounded up; 0: it
        is that score."""
        return self.slack + self.bias + 1 if self.slack else 0

    @property
    def step(self) -> float:
        """What one step of a product can be off by, relative to the largest number in it."""
        if self.kept:
            return cut_error(self.depth, self.kept)
        return serial_error(self.depth) if self.serial else step_error(self.depth)

    def added(self) -> list[int] | slice:
        """All columns in the order in which they are added up, 16 a step, but for where a tile
        begins. Of `boxes`: step j has 64 box + 16 q + 4 j .. 16 q + 4 j + 3, q = 0 .. 3."""
        if not self.boxes:
            return slice(None)
        return [
            64 * box + 16 * q + 4 * j + n
            for box in self.boxes for j in range(4) for q in range(4) for n in range(4)
        ]  # fmt: skip

    def sums(self, columns: int) -> list[list[int]]:
        """Columns that are added up by themselves, in their order, where columns share scales:
        those of no group, then each group's."""
        added = self.added()
        assert isinstance(added, list)
        groups = D_V // self.scaled_columns
        return [
            [column for column in added if min(column // self.scaled_columns, groups) == group]
            for group in (groups, *range(groups))
        ]  # fmt: skip


# Two warpgroups take turns at the tiles, each with half of the output's columns: it computes the
# scores of every second tile, and begins with the columns that it needs for its values anyway.
SEESAW = Order(tile=64, first_columns=(0, 256), late_columns=256)

# The same over rows of e4m3 with scales of columns, and products of f16.
SEESAW_OF_GRAINS = replace(SEESAW, grained=True, lifted=True, halves=True)

# One warpgroup with keys as the rows of its products: all columns in order, each tile's P rounded
# at that tile's maximum.
KEYS_AS_ROWS = Order(tile=64, first_columns=(0,), late_columns=D_V)

# The same over rows of e4m3 with scales of columns, and products of f16.
KEYS_OF_GRAINS = replace(KEYS_AS_ROWS, grained=True, lifted=True, halves=True)

# The same over e4m3 numbers that become f16 on their way to scores, as Q does; and where they have
# one scale, also on their way to sums, as P does.
SCORES_OF_F16 = replace(KEYS_AS_ROWS, lifted=True)
KEYS_AS_F16 = replace(SCORES_OF_F16, halves=True)

# The same with smaller tiles, and gfx950's products.
BY_WAVES = Order(tile=32, first_columns=(0,), late_columns=D_V, depth=32, serial=True, running=True)

# BY_WAVES with tiles of 64 keys.
BY_WAVES_64 = replace(BY_WAVES, tile=64)

# BY_WAVES with products of half as many numbers, and an M that seldom moves.
BY_WIDE_WAVES = replace(BY_WAVES, depth=16, slack=8)

# Both; some products add 64 numbers, which also bounds those that add them in several steps.
BY_WIDE_WAVES_64 = replace(BY_WIDE_WAVES, tile=64, depth=64)

# KEYS_AS_ROWS with an M that seldom moves, as sums in tensor memory are far from who scales them.
SELDOM_MOVED = Order(tile=64, first_columns=(0,), late_columns=D_V, slack=8)

# The same with products of e4m3. The largest P is exp2(2 + 6) = 256, below e4m3's 448. It is a
# normal number down to 2^-12 exp2(M).
OF_E4M3 = Order(tile=64, first_columns=(0,), late_columns=D_V, slack=2, depth=32, bias=6)

# The same on gfx950: some products add 64 numbers, which also bounds those that add 32.
E4M3_BY_WAVES = replace(BY_WIDE_WAVES_64, slack=2, bias=6)

# Hopper's products of e4m3: the tensor core keeps 13 bits of the largest term and of a sum. M in
# 512ths: fp32 holds it and its bias exactly up to 2^14.
HOPPER_E4M3 = replace(OF_E4M3, kept=13, fine=512)


def keys_in_registers(columns: int, scaled_columns: int = 0) -> Order:
    """The same with keys in registers, of so many columns: numbers that a thread has next to each
    other are added in one step. The last 64 columns come first."""
    first, second = range(D_V // 128), range(D_V // 128, D_V // 64)
    boxes = (8, *first, *second) if columns > D_V else (7, *second[:-1], *first)
    return Order(tile=64, first_columns=(0,), late_columns=D_V, boxes=boxes,
                 scaled_columns=scaled_columns)  # fmt: skip
