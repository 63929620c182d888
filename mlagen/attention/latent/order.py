"""The order of a kernel's arithmetic, which decides what its rounding oracle rounds."""

from __future__ import annotations

from dataclasses import dataclass

D_V = 512  # leading columns of a row that are its value


@dataclass(frozen=True)
class Order:
    """How a kernel walks its keys, tile by tile, with a maximum that moves at every tile.

    `tile`: keys of one. `first_columns`: the column that a tile's scores begin to add up at, before
    they go on with column 0; one for tile 0, tile 1, .., and so on from the first again.
    `late_columns`: for output columns from here on tiles go in pairs; the first tile's P is stored
    when the second one's maximum is known, and is added after it. Below, P is rounded at its own
    tile's maximum, and tiles are added in order.
    """

    tile: int
    first_columns: tuple[int, ...]
    late_columns: int


# Two warpgroups take turns at the tiles, each with half of the output's columns: it computes the
# scores of every second tile, and begins with the columns that it needs for its values anyway.
SEESAW = Order(tile=64, first_columns=(0, 256), late_columns=256)

# One warpgroup with keys as the rows of its products: all columns in order, each tile's P rounded
# at that tile's maximum.
KEYS_AS_ROWS = Order(tile=64, first_columns=(0,), late_columns=D_V)
