"""Who is right: contenders' outputs against the oracles, on some query rows and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from mlagen.attention.latent.order import Order
from mlagen.bench.accuracy import PEER_LIMIT, outside, relative
from mlagen.families.mla_sparse.benchmark.case import Array, HeldPool, SparseCase
from mlagen.families.mla_sparse.benchmark.work import SparseDecodeWork
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.inputs import (
    MlaSparseDecodeInputs,
    MlaSparseInputs,
    MlaSparsePrefillInputs,
)
from mlagen.families.mla_sparse.pool import Pool, empty_pool
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.verification import MlaSparseTrial, SplitInputs
from mlagen.family.benchmark import Judgement


@dataclass(frozen=True, eq=False)
class JudgedOutputs:
    """Of our call: `max_logits` is None of decode. `splits`: parts of each query's keys."""

    out: Any
    lse: Any
    max_logits: Any
    splits: int = 1

    def by_name(self) -> dict[str, Any]:
        """The tensors, by the names that oracles know."""
        found = {"o": self.out, "lse": self.lse, "max_logits": self.max_logits}
        return {name: tensor for name, tensor in found.items() if tensor is not None}


def outside_oracles(
    inputs: MlaSparseInputs,
    outputs: dict[str, Array],
    order: Order,
    *,
    splits: int,
    heads: Sequence[int],
) -> str:
    """What of the outputs is outside the bounds of either oracle, in words."""
    starts = MlaSparseTrial(SplitInputs(inputs, splits), order).splits
    found = (
        compare_outputs(
            inputs, oracle(inputs, heads=heads, splits=starts, order=order), outputs
        ).values()
        for oracle in (exact, rounded)
    )
    return outside(*chain.from_iterable(found))


class SparseJudge:
    """The query rows of some entries (rows of prefill, sequences of decode: the first, one in the
    middle, the last and the one with the longest lists) and their first and last heads, on the
    host. `host`: copies a tensor there; `order`: in which the kernel computes."""

    def __init__(self, case: SparseCase, host: Callable[[Any], Array], order: Order) -> None:
        self.case, self.host, self.order = case, host, order
        work = case.work
        last = work.entries - 1
        self.entries = sorted({0, last // 2, last, int(np.argmax(work.lengths))})
        self.heads = sorted({0, work.config.num_heads - 1})
        self.inputs = self._inputs()
        self.expected = exact(self.inputs, heads=self.heads, order=order)

    def _inputs(self) -> MlaSparseInputs:
        """The call of these entries. Its pools have the rows that lists name, and no others."""
        case, work = self.case, self.case.work
        pool, indices = self._named(case.pool, case.indices)
        given: dict[str, Any] = {
            "q": self._own(case.q), "cache": pool.cache, "indices": indices, "scale": case.scale,
            "q_scale": case.q_scale,
            "kv_scales": pool.scales, "topk_length": self._own(case.topk_length),
        }  # fmt: skip
        if not isinstance(work, SparseDecodeWork):
            return MlaSparsePrefillInputs(work.config, **given)
        given |= {
            "positions": self._own(case.positions),
            "first_position": self._own(case.first_position),
        }
        if case.extra_pool is not None:
            pool, indices = self._named(case.extra_pool, case.extra_indices)
            given |= {
                "extra_cache": pool.cache, "extra_indices": indices, "extra_kv_scales": pool.scales,
            }  # fmt: skip
        return MlaSparseDecodeInputs(work.config, **given)

    def _named(self, held: HeldPool, indices: Any) -> tuple[Pool, Array]:
        own = self._own(indices)
        rows = np.unique(own[own >= 0]).astype(np.int64)
        pool = empty_pool(held.row, self.case.work.config.d_qk, pages=1, page_size=len(rows))
        pool.put(np.arange(len(rows)), *held.stored(rows))
        return pool, np.where(own >= 0, np.searchsorted(rows, own), -1).astype(np.int32)

    def ours(self, output: JudgedOutputs) -> Judgement:
        """O, LSE and largest scores, in the splits that they were computed with, within the bounds
        of both oracles; no number of any query row is NaN."""
        own = {name: self._own(tensor) for name, tensor in output.by_name().items()}
        wrong = outside_oracles(
            self.inputs, own, self.order, splits=output.splits, heads=self.heads
        )
        nans = [name for name, tensor in output.by_name().items() if bool((tensor != tensor).any())]
        if nans and not wrong:
            wrong = f"numbers of {', '.join(nans)} are NaN in query rows that are not compared"
        return replace(relative(self.expected.output, self._whole(own["o"])), wrong=wrong)

    def peer(self, output: Any) -> Judgement:
        """A relative error of O below `PEER_LIMIT`."""
        limit = PEER_LIMIT[self.case.work.config.row_format.element]
        return relative(self.expected.output, self._whole(self._own(output)), limit)

    def _own(self, tensor: Any) -> Any:
        return None if tensor is None else self.host(tensor[self.entries])

    def _whole(self, o: Array) -> Array:
        """O in the oracles' four dimensions."""
        inputs = self.inputs
        return o.reshape(inputs.batch, inputs.tokens, *o.shape[-2:])
