"""What the parts of a kernel share: its problem, its space, and what their templates may name."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.attention.latent.nvidia.recording import Recording
from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.problem import LatentProblem, item_rows
from mlagen.attention.latent.sm_90a.registers import COLUMN_MAJOR, FLOAT, ROW_MAJOR
from mlagen.dsl import exactly
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import TmaTile, WarpRole

ROW_BYTES = 128  # of a tile: the swizzle's atom is 8 rows of them (PTX ISA, matrix descriptor)
MOST_ROWS = 32  # of Q: their accumulators fill a thread's registers


def rows_in_eights(k: LatentProblem) -> int:
    """Query rows that products have for a work item."""
    return -(-item_rows(k) // 8) * 8


def check_width(what: str, columns: int, bytes_each: int) -> None:
    """ScheduleError where tiles of `columns` numbers, in SMEM of so many bytes each, have rows that
    are no whole swizzle atom."""
    if columns * bytes_each != ROW_BYTES:
        raise ScheduleError(
            f"tiles of {what} of {columns} columns, {bytes_each} bytes each",
            hint=f"a row of a tile is {ROW_BYTES} bytes: {ROW_BYTES // bytes_each} columns",
        )


def check_rows(rows: int, needed: int) -> None:
    """ScheduleError where products of `rows` query rows do not have all that a block needs."""
    least = -(-needed // 8) * 8
    if rows % 8 or not least <= rows <= MOST_ROWS:
        raise ScheduleError(
            f"products have {rows} query rows, a block {needed}",
            hint=f"a multiple of 8 from {least} to {MOST_ROWS}",
        )


def is_few(k: LatentProblem) -> bool:
    """Whether swap-AB serves a problem: its rows of Q are few."""
    return item_rows(k) <= MOST_ROWS


def query_rows(k: LatentProblem, stored: RowForm | None) -> int:
    """Rows of Q that a block of one query multiplies: heads, in eights. `stored`: the form of
    quantised rows."""
    rows = -(-k.num_heads // 8) * 8
    # ptxas 13.0 spills with 24, where fp32 scales lie in the rows, and does not with 32.
    in_rows = stored and stored.scales_at is not None and not stored.powers
    return 32 if rows == 24 and in_rows else rows


@dataclass
class SwapAbKernel(Recording):
    """`rows`: query rows that products have. `math`: the warpgroup that has O; `scores`: the one
    that has S and P, the same unless roles are split. Registers (o, s) are the schedule's."""

    rows: int
    math: WarpRole
    scores: WarpRole

    def __post_init__(self) -> None:
        for role in self.users:
            if role.threads != 128:
                raise ScheduleError(
                    f"role {role.name!r} has {role.threads} threads",
                    hint="one warpgroup has all query rows of a block",
                )
        parts = self.k.d_v // COLUMNS
        self.context |= {
            "k": self.k, "rows": self.rows, "tile_rows": TILE, "float_bytes": FLOAT,
            "role": self.math, "value_parts": parts,
            "row_major_bits": hex(ROW_MAJOR), "column_major_bits": hex(COLUMN_MAJOR),
            "o": self.s.names("o", exactly("registers", parts * self.rows // 2, "O^T")),
            "s": self.s.names("s", exactly("registers", self.rows // 2, "S^T of a tile")),
        }  # fmt: skip
        self.name(
            ("row_major", ".b64", "descriptor of SMEM read along its rows (K-major)"),
            ("column_major", ".b64", "descriptor of SMEM read across its rows (MN-major)"),
            ("own_key", ".b32", "this thread's first key of a tile"),
            ("own_row", ".b32", "its first query row"),
        )

    @property
    def users(self) -> tuple[WarpRole, ...]:
        """Roles that use keys, the one that uses Q first."""
        return (self.math,) if self.scores is self.math else (self.scores, self.math)

    @property
    def held_rows(self) -> int:
        """Query rows that a thread has numbers of."""
        return self.rows // 4

    def tiles(self, tensor: str) -> list[TmaTile]:
        """The schedule's tiles of a tensor."""
        return [tile for tile in self.s.smem.tiles.values() if tile.tensor == tensor]

    def name(self, *registers: tuple[str, str, str]) -> None:
        """Declare registers (operand of templates, type, why), one each."""
        for operand, type, why in registers:
            self.context[operand] = self.s.named(operand, type, 1, why)[0]

    def names(self, *registers: tuple[str, str, int, str]) -> None:
        """Declare registers (operand of templates, type, how many, why), several each."""
        for operand, type, count, why in registers:
            self.context[operand] = self.s.named(operand, type, count, why)
