"""Caches and lists of torch, filled where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_sparse.benchmark.case import Array, Indices
from mlagen.families.mla_sparse.rows import BF16_BYTES, FP32_BYTES, ROPE, RowFormat
from mlagen.problem.formats import ELEMENT_TYPES

AT_ONCE = 1 << 27  # numbers that are drawn, or sorted, at a time
SPREAD = 0.25  # of the logarithms of scales
QUERY_STEP = 2.0**-4  # what e4m3 queries are multiples of: they are exact in bf16
POWERS = (125, 129)  # ue8m0 scales, from 2**-2 below 2**2
Make = Callable[..., Any]  # a tensor of uint8 of a shape, with any content


@dataclass(frozen=True, eq=False)
class TorchPool:
    """`memory` uint8 [pages, bytes of a page]; `scales` fp32 beside it, or None."""

    torch: Any
    row: RowFormat
    d_qk: int
    page_size: int
    memory: Any
    scales: Any = None

    @cached_property
    def cache(self) -> Any:
        """[pages, page_size, columns], as kernels take it."""
        kinds = {"bf16": self.torch.bfloat16, "fp8_e4m3": self.torch.float8_e4m3fn}
        return self._bytes(0, self.row.row_bytes(self.d_qk)).view(kinds[self.row.element])

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.memory.shape[0]) * self.page_size

    @property
    def _behind(self) -> int:
        """Bytes of a row that lie behind the rows of its page."""
        return self.row.behind

    @property
    def data(self) -> Any:
        """uint8 [pages, page_size, bytes of a row but for those behind them]."""
        return self._bytes(0, self.row.row_bytes(self.d_qk) - self._behind)

    @property
    def behind(self) -> Any:
        """uint8 [pages, page_size, bytes]: the scales behind a page's rows."""
        start = self.page_size * (self.row.row_bytes(self.d_qk) - self._behind)
        return self._bytes(start, self._behind)

    def _bytes(self, start: int, width: int) -> Any:
        pages, stride = self.memory.shape[0], self.memory.stride(0)
        shape, strides = (pages, self.page_size, width), (stride, width, 1)
        return self.memory.as_strided(shape, strides, start)

    def stored(self, rows: Indices) -> tuple[Array, Array | None]:
        """Copies of these rows and of their scales beside the cache, in the host's memory."""
        at = self.torch.from_numpy(rows).to(self.memory.device)
        page, place = at // self.page_size, at % self.page_size
        found = [self.data[page, place]]
        if self._behind:
            found.append(self.behind[page, place])
        whole = to_host(self.torch.cat(found, dim=1)).view(ELEMENT_TYPES[self.row.element])
        return whole, None if self.scales is None else to_host(self.scales[at])

    def bf16(self) -> Any:
        """The same numbers, each times its scale and rounded, [rows, d_qk] bf16: the cache itself
        where it is bf16."""
        if self.row.scale == "none":
            return self.cache.view(self.count, self.d_qk)
        torch = self.torch
        shape = (self.count, self.d_qk)
        found = torch.empty(shape, dtype=torch.bfloat16, device=self.memory.device)
        for first, last in _chunks(len(self.memory), self.page_size * self.d_qk):
            part = self._numbers(first, last)
            found[first * self.page_size : last * self.page_size] = part.view(-1, self.d_qk)
        return found

    def _numbers(self, first: int, last: int) -> Any:
        """Of these pages, fp32 [pages, page_size, d_qk]."""
        torch, row = self.torch, self.row
        content, data = row.content(self.d_qk), self.data[first:last]
        numbers = data[..., :content].contiguous().view(torch.float8_e4m3fn).float()
        scales = self._scales(first, last)
        if scales is not None:
            block = row.block or content
            numbers = numbers * scales.repeat_interleave(block, dim=-1)[..., :content]
        if not row.rope:
            return numbers
        rope = data[..., -BF16_BYTES * ROPE :].contiguous().view(torch.bfloat16).float()
        if not row.once and scales is not None:
            rope = rope * scales
        return torch.cat([numbers, rope], dim=-1)

    def _scales(self, first: int, last: int) -> Any:
        """Of these pages, fp32 [pages, page_size, scales]; None where rows have none."""
        torch, row = self.torch, self.row
        count, content = row.scales(self.d_qk), row.content(self.d_qk)
        if not count:
            return None
        if row.scale == "ue8m0":
            own = self.behind if row.behind else self.data[..., content:]
            powers = own[first:last, :, :count].int() - 127
            return torch.ldexp(torch.ones_like(powers, dtype=torch.float32), powers)
        if row.scale == "fp32":
            own = self.data[first:last, :, content : content + FP32_BYTES * count]
            return own.contiguous().view(torch.float32)
        flat = self.scales[first * self.page_size : last * self.page_size]
        return flat.view(last - first, self.page_size, count)


@dataclass(frozen=True, eq=False)
class Drawer:
    """Draws with `made`, a torch.Generator, where it lies; `make`: makes tensors of uint8."""

    torch: Any
    made: Any
    make: Make

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(shape, device=self.made.device, generator=self.made)

    def queries(self, dtype: str, *shape: int) -> tuple[Any, float]:
        """Standard normal queries of this type, and what they are multiples of."""
        numbers = self.normal(*shape)
        if dtype == "bf16":
            return numbers.bfloat16(), 1.0
        return numbers.div_(QUERY_STEP).to(self.torch.float8_e4m3fn), QUERY_STEP

    def pool(self, row: RowFormat, d_qk: int, pages: int, page_size: int) -> TorchPool:
        """Standard normal numbers, rounded as they are stored, and scales around 1."""
        memory = self.make((pages, row.page_bytes(d_qk, page_size)))
        side = row.side_shape(d_qk, pages * page_size)
        scales = None if side is None else self.normal(*side).mul_(SPREAD).exp_()
        pool = TorchPool(self.torch, row, d_qk, page_size, memory, scales)
        for first, last in _chunks(pages, page_size * d_qk):
            self._fill(pool, first, last)
        return pool

    def _fill(self, pool: TorchPool, first: int, last: int) -> None:
        torch, row, d_qk = self.torch, pool.row, pool.d_qk
        shape, data = (last - first, pool.page_size), pool.data[first:last]
        kind = torch.bfloat16 if row.scale == "none" else torch.float8_e4m3fn
        parts = [self.normal(*shape, row.content(d_qk)).to(kind)]
        count = row.scales(d_qk)
        if row.scale == "fp32":
            parts.append(self.normal(*shape, count).mul_(SPREAD).exp_())
        if row.rope:
            parts.append(self.normal(*shape, row.rope).bfloat16())
        start = 0
        for part in parts:
            own = part.view(torch.uint8)
            data[..., start : start + own.shape[-1]] = own
            start += own.shape[-1]
        if row.scale == "ue8m0":
            behind = pool.behind[first:last] if row.behind else data[..., start:]
            behind.zero_()
            powers = torch.randint(
                *POWERS, (*shape, count), device=self.made.device, generator=self.made
            )
            behind[..., :count] = powers.to(torch.uint8)

    def places(self, lists: int, keys: int, topk: int, *, ascending: bool) -> Any:
        """Lists [lists, topk] of distinct numbers of 0 .. keys - 1, int64."""
        torch, device = self.torch, self.made.device
        found = torch.empty((lists, topk), dtype=torch.int64, device=device)
        for first, last in _chunks(lists, keys):
            drawn = torch.rand((last - first, keys), device=device, generator=self.made)
            found[first:last] = drawn.topk(topk, dim=1).indices  # in the order of what was drawn
        return found.sort(dim=1).values if ascending else found

    def cut(self, lists: Any, lengths: Any, invalid: int) -> Any:
        """Lists [lists, topk] with -1 past their lengths [lists], and in `invalid` percent, rounded
        down, of the places before them."""
        torch = self.torch
        place = torch.arange(lists.shape[1], device=lists.device)
        for first, last in _chunks(len(lists), lists.shape[1]):
            own, length = lists[first:last], lengths[first:last, None]
            own[place >= length] = -1
            drawn = torch.rand(own.shape, device=own.device, generator=self.made)
            drawn[place >= length] = 2.0  # after all others
            rank = drawn.argsort(dim=1).argsort(dim=1)
            own[rank < length * invalid // 100] = -1
        return lists


def _chunks(count: int, each: int) -> Iterator[tuple[int, int]]:
    """Ranges of 0 .. count, each of about `AT_ONCE` numbers."""
    step = max(1, AT_ONCE // max(1, each))
    return ((first, min(first + step, count)) for first in range(0, count, step))
