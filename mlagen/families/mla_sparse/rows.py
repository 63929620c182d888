"""The formats of a cache row: widths, bytes, and where its scales are. One table, no numpy.

How rows are read and made, `mlagen.families.mla_sparse.coding` says.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ConfigError
from mlagen.problem.fields import listed

ROPE = 64  # trailing bf16 columns, where a format has them
BF16_BYTES, FP32_BYTES = 2, 4
PAGE_UNIT = 576  # bytes that a model1 page is a multiple of


@dataclass(frozen=True)
class RowFormat:
    """How a row of `d_qk` numbers is stored.

    `widths`: the d_qk that it exists for. `rope`: trailing columns in bf16, the others are e4m3
    (bf16 where `element` is). `scale`: what e4m3 numbers are multiples of: nothing ("none"), one
    number of the call ("cache"), fp32 in an array beside the cache ("side"), fp32 or ue8m0 in the
    row's bytes ("fp32", "ue8m0"), behind its e4m3 numbers. `block`: columns that share a scale; 0:
    all of a row's. `behind`: bytes of each row, its scales and padding, that lie behind all rows of
    their page; 0: a row is in one piece.
    """

    name: str
    widths: tuple[int, ...]
    scale: str
    block: int = 0
    rope: int = 0
    behind: int = 0

    @property
    def element(self) -> str:
        """The type of the cache's array: rows of bytes are e4m3 by name."""
        return "bf16" if self.scale == "none" else "fp8_e4m3"

    @property
    def exact(self) -> bool:
        """Whether scales are powers of two, which round no number."""
        return self.scale == "ue8m0"

    @property
    def once(self) -> bool:
        """Whether a kernel that computes in bf16 multiplies each number by its scale and rounds
        it. Else stored numbers are exact in bf16, and the scale multiplies S and P."""
        return self.block > 0

    def content(self, d_qk: int) -> int:
        """Leading columns that are no bf16 rope."""
        return d_qk - self.rope

    def scales(self, d_qk: int) -> int:
        """Scales of a row that lie in its bytes or beside the cache."""
        if self.scale in ("none", "cache"):
            return 0
        return -(-self.content(d_qk) // self.block) if self.block else 1

    def row_bytes(self, d_qk: int) -> int:
        """Bytes of a row, of its scales too where they lie there."""
        number = BF16_BYTES if self.scale == "none" else 1
        own = {"fp32": FP32_BYTES * self.scales(d_qk), "ue8m0": self.behind or self.scales(d_qk)}
        return number * self.content(d_qk) + BF16_BYTES * self.rope + own.get(self.scale, 0)

    def columns(self, d_qk: int) -> int:
        """Elements of a row in the cache's array."""
        return self.row_bytes(d_qk) // (BF16_BYTES if self.element == "bf16" else 1)

    def page_bytes(self, d_qk: int, page_size: int) -> int:
        """Bytes of a page whose rows follow each other."""
        needed = page_size * self.row_bytes(d_qk)
        return -(-needed // PAGE_UNIT) * PAGE_UNIT if self.behind else needed

    def side_shape(self, d_qk: int, rows: int) -> tuple[int, ...] | None:
        """Shape of the fp32 array beside a cache of so many rows; None: there is none."""
        if self.scale != "side":
            return None
        return (rows, self.scales(d_qk)) if self.block else (rows,)


_BOTH = (576, 512)
FORMATS = {
    row.name: row
    for row in (
        RowFormat("bf16", _BOTH, "none"),
        RowFormat("e4m3", _BOTH, "cache"),
        RowFormat("e4m3_row", _BOTH, "side"),
        RowFormat("e4m3_block32", _BOTH, "side", block=32),
        RowFormat("e4m3_block64", _BOTH, "side", block=64),
        RowFormat("e4m3_block128", _BOTH, "side", block=128),
        # 512 e4m3, 4 fp32 scales, 64 bf16: FlashMLA's V3.2.
        RowFormat("v32", (576,), "fp32", block=128, rope=ROPE),
        # 512 e4m3, 64 bf16 divided by the row's scale, too: as in mla_decode.
        RowFormat("rope_aware", (576,), "side", rope=ROPE),
        # 448 e4m3, 64 bf16; 7 ue8m0 and a byte of padding at the page's end: FlashMLA's MODEL1.
        RowFormat("model1", (512,), "ue8m0", block=64, rope=ROPE, behind=8),
        # 512 e4m3, 16 ue8m0: DeepSeek V4.1's rows of 528 bytes.
        RowFormat("v41", (512,), "ue8m0", block=32),
    )
}
ROWS = tuple(FORMATS)


def row_format(name: str, d_qk: int) -> RowFormat:
    """The format of that name. ConfigError: there is none, or it is not of this width."""
    if name not in FORMATS:
        raise ConfigError(f"rows={name} is no format", hint=f"rows is {listed(ROWS)}")
    found = FORMATS[name]
    if d_qk not in found.widths:
        fits = [other for other in ROWS if d_qk in FORMATS[other].widths]
        raise ConfigError(
            f"rows={name} does not go with d_qk={d_qk}",
            hint=f"d_qk={listed(found.widths)}" + (f", or rows={listed(fits)}" if fits else ""),
        )
    return found


def format_of(d_qk: int, element: str, columns: int, side: tuple[int, ...] | None) -> str:
    """The format of rows of `columns` elements with scales of the shape `side` beside the cache, or
    none. ConfigError: there is no such format."""
    scales = None if side is None else side[1:]
    for row in FORMATS.values():
        if d_qk in row.widths and row.element == element and row.columns(d_qk) == columns:
            wanted = row.side_shape(d_qk, 0)
            if scales == (None if wanted is None else wanted[1:]):
                return row.name
    beside = "no scales" if side is None else f"scales of shape {side}"
    raise ConfigError(
        f"no format has rows of {columns} numbers of {element} for d_qk={d_qk}, with {beside} "
        "beside the cache",
        hint=f"formats: {', '.join(FORMATS)}; widths and scales are in docs/mla_sparse.md",
    )
