"""Where the rows of a pool lie, in the numbers that kernels take."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.rows import RowFormat

MOST_ROWS = 2**31 - 1  # an index is int32
ROW_ALIGN = 16  # bytes that a thread loads at once


@dataclass(frozen=True, slots=True)
class Paging:
    """Row r lies `row_bytes` r + `page_gap` (r `page_magic` >> `page_shift`) bytes from the first:
    the shifted product is r // page_size, and pages lie `page_gap` bytes further apart than their
    rows say. `cache_rows`: rows of the pool."""

    cache_rows: int
    row_bytes: int
    page_magic: int
    page_shift: int
    page_gap: int
    page_size: int

    @staticmethod
    def of(row: RowFormat, d_qk: int, shape: tuple[int, int], strides: tuple[int, int]) -> Paging:
        """Of a pool of `shape` [pages, page_size] with strides in bytes. ConfigError for a pool
        that kernels cannot address."""
        (pages, page_size), (page, apart) = shape, strides
        own = row.row_bytes(d_qk)
        if row.behind:
            apart = own - row.behind  # the scales lie behind the page's rows
        elif page_size == 1:
            apart = own
        # in a single page nothing lies between pages
        gap = page - page_size * apart if pages > 1 else 0
        rows = pages * page_size
        if rows > MOST_ROWS:
            raise ConfigError(
                f"a cache of {rows} rows", hint=f"an index is int32: at most {MOST_ROWS} rows"
            )
        if apart % ROW_ALIGN or (pages > 1 and page % ROW_ALIGN):
            raise ConfigError(
                f"rows lie {apart} bytes apart, and pages {page}",
                hint=f"both are multiples of {ROW_ALIGN} bytes",
            )
        if not 0 <= gap < 2**32:
            raise ConfigError(
                f"pages of {page_size} rows lie {page} bytes apart, {gap} more than they take",
                hint="at most 2**32 - 1 more",
            )
        return Paging(rows, apart, *reciprocal(page_size), gap, page_size)

    def numbers(self, prefix: str = "") -> dict[str, int]:
        """By the names of a kernel's arguments."""
        return {prefix + name: value for name, value in asdict(self).items()}


def reciprocal(divisor: int) -> tuple[int, int]:
    """(magic, shift) with x * magic >> shift == x // divisor for 0 <= x < 2**31."""
    log2 = (divisor - 1).bit_length()
    return -(-(2 ** (31 + log2)) // divisor), 31 + log2


def split_numbers(splits: int) -> dict[str, int]:
    """What kernels take of the parts of a query's keys, by the names of their arguments."""
    magic, shift = reciprocal(splits)
    return {"splits": splits, "split_magic": magic, "split_shift": shift}


def extent(row: RowFormat, d_qk: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes of a pool of `shape` [pages, page_size], its gaps included; strides in bytes."""
    (pages, page_size), (page, apart) = shape, strides
    return (pages - 1) * page + (page_size - 1) * apart + row.row_bytes(d_qk)


def check_strides(
    name: str, row: RowFormat, d_qk: int, shape: tuple[int, int], strides: tuple[int, ...]
) -> None:
    """ConfigError where the rows of a pool of `shape` [pages, page_size] overlap, or are not rows.
    `strides` in bytes: of pages, rows and elements."""
    (pages, page_size), (page, apart, element) = shape, strides
    width = row.row_bytes(d_qk)
    packed = row.behind > 0
    fits = element * row.columns(d_qk) == width
    fits &= page_size == 1 or (apart == width if packed else apart >= width)
    room = row.page_bytes(d_qk, page_size) if packed else (page_size - 1) * apart + width
    if not fits or (pages > 1 and page < room):
        raise ConfigError(
            f"{name} has strides {strides} in bytes: its rows overlap, or are not rows of {width} "
            "bytes whose elements follow each other",
            hint=f"a row stride of {width} bytes" + ("" if packed else " or more")
            + f", a page stride of {room} bytes or more",
        )  # fmt: skip
