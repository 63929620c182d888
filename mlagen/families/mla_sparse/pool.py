"""A cache of latent rows as it lies in memory: pages with strides of their own, and scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.families.mla_sparse.call_checks import check_side
from mlagen.families.mla_sparse.coding import CodedRows, decode, stored_scales
from mlagen.families.mla_sparse.paging import check_strides
from mlagen.families.mla_sparse.rows import RowFormat
from mlagen.problem.arrays import check_tensor, untouched, unwritten
from mlagen.problem.formats import ELEMENT_TYPES, Floats

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """`cache` [pages, page_size, columns] and, where the format has them, `scales` fp32 beside it,
    [rows] or [rows, scales of a row]. Row r stands in page r // page_size at place r % page_size.

    The cache may be a view with strides: a row's elements follow each other, rows and pages may
    have room between them, as in a pool of several layers. Pages of `model1` hold all rows' data
    and then all their scales, so their rows leave no room, and a page has room for whole units of
    576 bytes. Raises ConfigError for what does not fit; `name`: of the cache in messages.
    """

    row: RowFormat
    d_qk: int
    cache: Array
    scales: npt.NDArray[np.float32] | None
    name: str = "cache"

    def __post_init__(self) -> None:
        columns = self.row.columns(self.d_qk)
        check_tensor(self.name, self.cache, (None, None, columns), self.row.element)
        pages, page_size, _ = self.cache.shape
        check_strides(self.name, self.row, self.d_qk, (pages, page_size), self.cache.strides)
        wanted = self.row.side_shape(self.d_qk, self.rows)
        called = self.name.replace("cache", "kv_scales")
        check_side(called, self.row.name, self.scales, wanted)
        if wanted is not None:
            check_tensor(called, self.scales, wanted, "fp32")

    @property
    def rows(self) -> int:
        """Rows of the pool."""
        return int(self.cache.shape[0] * self.cache.shape[1])

    def stored(self, rows: Indices) -> tuple[Array, Array | None]:
        """These rows as they are stored, [rows, columns], and their scales beside the cache."""
        page_size = self.cache.shape[1]
        page, place = rows // page_size, rows % page_size
        side = None if self.scales is None else self.scales[rows]
        if not self.row.behind:
            return self.cache[page, place], side
        data, scales = model1_parts(self.cache, self.row.behind)
        return np.concatenate([data[page, place], scales[page, place]], axis=1), side

    def numbers(self, rows: Indices) -> CodedRows:
        """What these rows hold."""
        return decode(self.row, self.d_qk, *self.stored(rows))

    def row_scales(self, rows: Indices) -> Floats:
        """The scales of these rows, [rows, scales of a row]."""
        return stored_scales(self.row, self.d_qk, *self.stored(rows))

    def put(self, rows: Indices, stored: Array, side: Array | None) -> None:
        """Stores rows as `coding.encode` makes them."""
        page_size = self.cache.shape[1]
        page, place = rows // page_size, rows % page_size
        if self.scales is not None:
            self.scales[rows] = side
        if not self.row.behind:
            self.cache[page, place] = stored
            return
        data, scales = model1_parts(self.cache, self.row.behind)
        data[page, place] = stored[:, : data.shape[2]]
        scales[page, place] = stored[:, data.shape[2] :]


def model1_parts(cache: Array, scale_bytes: int) -> tuple[Array, Array]:
    """The data rows and the scale rows of pages, as views of `cache`, [pages, page_size, bytes]."""
    pages, page_size, columns = cache.shape
    whole = np.lib.stride_tricks.as_strided(
        cache, (pages, page_size * columns), (cache.strides[0], 1)
    )
    data = page_size * (columns - scale_bytes)
    return (
        whole[:, :data].reshape(pages, page_size, -1),
        whole[:, data:].reshape(pages, page_size, scale_bytes),
    )


def empty_pool(
    row: RowFormat,
    d_qk: int,
    *,
    pages: int,
    page_size: int,
    layers: int = 1,
    room: int = 0,
    poisoned: bool = True,
) -> Pool:
    """A pool of NaN that is one layer, the last, of a larger one of NaN: the pages of all `layers`
    take turns. `room`: bytes between rows, which `model1` has none of. Not `poisoned`: the pool is
    `untouched`."""
    width = row.row_bytes(d_qk)
    stride = width if row.behind else width + room
    own = max(page_size * stride, row.page_bytes(d_qk, page_size))
    whole = (pages, layers, own)
    # NaN in bf16, e4m3 and ue8m0
    memory = np.full(whole, 0xFF, np.uint8) if poisoned else untouched(whole, np.uint8)
    layer = memory[:, -1, : page_size * stride].reshape(pages, page_size, stride)[:, :, :width]
    shape = row.side_shape(d_qk, pages * page_size)
    scales = None if shape is None else unwritten(shape, np.float32, compared=poisoned)
    return Pool(row, d_qk, layer.view(ELEMENT_TYPES[row.element]), scales)
