"""The tensors of a call, of torch, drawn where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlagen.families.mla_sparse.benchmark.case import SparseCase
from mlagen.families.mla_sparse.benchmark.torch_pool import Drawer
from mlagen.families.mla_sparse.benchmark.work import PrefillWork, SparseDecodeWork, Work


@dataclass(frozen=True, eq=False)
class CaseMaker:
    """Makes the tensors of a work where its drawer draws."""

    work: Work
    draw: Drawer

    def case(self) -> SparseCase:
        """All of them."""
        work = self.work
        return self._decode(work) if isinstance(work, SparseDecodeWork) else self._prefill(work)

    def _prefill(self, work: PrefillWork) -> SparseCase:
        config, draw = work.config, self.draw
        q, q_scale = draw.queries(config.dtype, work.rows, config.num_heads, config.d_qk)
        pool = draw.pool(config.row_format, config.d_qk, 1, work.keys)
        places = self._places(work.keys, work.topk)
        return SparseCase(work, q, pool, self._listed(places), self._lengths(), q_scale=q_scale)

    def _decode(self, work: SparseDecodeWork) -> SparseCase:
        config, draw = work.config, self.draw
        shape = work.batch, config.q_len, config.num_heads, config.d_qk
        q, q_scale = draw.queries(config.dtype, *shape)
        pool, table = self._paged(work, work.keys)
        places = self._places(work.keys, work.topk)
        more: dict[str, Any] = {}
        if config.causal:
            first = draw.torch.full((work.batch,), work.keys - config.q_len, device=q.device)
            more = {"positions": self._shaped(places.int()), "first_position": first.int()}
        indices = self._listed(self._rows(work, table, places))
        if work.extra_keys is not None and work.extra_topk is not None:
            extra, table = self._paged(work, work.extra_keys)
            rows = self._rows(work, table, self._places(work.extra_keys, work.extra_topk))
            more |= {"extra_pool": extra, "extra_indices": self._listed(rows, cut=False)}
        return SparseCase(work, q, pool, indices, self._lengths(), q_scale=q_scale, **more)

    def _lengths(self) -> Any:
        if self.work.least is None:
            return None
        lengths = self.draw.torch.tensor(self.work.lengths, dtype=self.draw.torch.int32)
        return lengths.to(self.draw.made.device)

    def _places(self, keys: int, topk: int) -> Any:
        return self.draw.places(self.work.lists, keys, topk, ascending=bool(self.work.sorted))

    def _paged(self, work: SparseDecodeWork, keys: int) -> tuple[Any, Any]:
        """A pool with room for all sequences, and their pages [batch, pages] in it, anywhere."""
        draw, config = self.draw, work.config
        columns = -(-keys // work.page_size)
        count = work.batch * columns
        pool = draw.pool(config.row_format, config.d_qk, count, work.page_size)
        order = draw.torch.randperm(count, device=draw.made.device, generator=draw.made)
        return pool, order.view(work.batch, columns)

    def _rows(self, work: SparseDecodeWork, table: Any, places: Any) -> Any:
        """The rows of a pool that lie at these places [lists, topk] of their sequences."""
        pages = table.repeat_interleave(work.lists // work.batch, dim=0)
        size = work.page_size
        return pages.gather(1, places // size) * size + places % size

    def _listed(self, rows: Any, *, cut: bool = True) -> Any:
        """Rows [lists, topk] as kernels take them; `cut`: at the lists' lengths."""
        work, torch = self.work, self.draw.torch
        each = work.lists // work.entries
        full = rows.shape[1]
        lengths = torch.tensor(work.lengths if cut else (full,) * work.entries)
        if work.invalid or (cut and work.least is not None):
            at = lengths.to(rows.device).repeat_interleave(each)
            rows = self.draw.cut(rows, at, work.invalid)
        return self._shaped(rows.int())

    def _shaped(self, lists: Any) -> Any:
        work = self.work
        if isinstance(work, SparseDecodeWork):
            return lists.view(work.batch, *work.config.lists, -1)
        return lists
