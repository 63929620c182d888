"""Sparse calls without a GPU: tensors are the host's, kernels are oracles or emulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from fake_lab import FakeClock, FakeLab

from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import KEYS_AS_ROWS
from mlagen.families.mla_sparse.benchmark.case import SparseCase
from mlagen.families.mla_sparse.benchmark.judge import JudgedOutputs, SparseJudge
from mlagen.families.mla_sparse.benchmark.work import SparseDecodeWork, Work
from mlagen.families.mla_sparse.inputs import MlaSparseDecodeInputs
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.pool import Pool
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.verification import MlaSparseTrial, SplitInputs


class Tensor(np.ndarray):
    """An array with what peers ask of a tensor of torch."""

    def new_zeros(self, shape: tuple[int, ...]) -> Any:
        return tensor(np.zeros(shape, self.dtype))

    def new_full(self, shape: tuple[int, ...], value: int) -> Any:
        return tensor(np.full(shape, value, self.dtype))

    def view(self, *shape: int) -> Any:
        return self.reshape(shape)


def tensor(array: Any) -> Any:
    return np.ndarray.view(np.asarray(array), Tensor)


@dataclass(frozen=True, eq=False)
class HostPool:
    """A pool of the host as a case has it."""

    pool: Pool

    @property
    def row(self) -> Any:
        return self.pool.row

    @property
    def cache(self) -> Any:
        return tensor(self.pool.cache)

    @property
    def scales(self) -> Any:
        return self.pool.scales

    def stored(self, rows: Any) -> Any:
        return self.pool.stored(rows)

    def bf16(self) -> Any:
        return tensor(self.pool.numbers(np.arange(self.pool.rows)).bf16.astype(ml_dtypes.bfloat16))


def inputs_of(work: Work) -> Any:
    """Made-up inputs of these sizes; sequences of a decode share their rows."""
    lengths = None if work.least is None else work.lengths
    pattern = "invalid" if work.invalid else "distinct"
    given: dict[str, Any] = {
        "topk": work.topk, "cache_rows": work.keys, "data": "randn", "seed": work.seed,
        "pattern": pattern, "lengths": lengths,
    }  # fmt: skip
    if not isinstance(work, SparseDecodeWork):
        return mla_sparse_prefill_inputs(work.config, rows=work.rows, **given)
    if work.config.extra:
        given["extra_topk"] = work.extra_topk
    return mla_sparse_decode_inputs(work.config, batch=work.batch, **given)


def rows(indices: Any, pool: Pool) -> Any:
    """Lists as a case has them: what names no row is -1."""
    return tensor(np.where((indices >= 0) & (indices < pool.rows), indices, -1).astype(np.int32))


class FakeSparseLab(FakeLab):
    """Ours takes `seconds`; `spoil` changes its outputs before they are looked at."""

    spoil: Callable[[JudgedOutputs], None] | None  # type: ignore[assignment]

    def __init__(
        self,
        seconds: float = 2e-3,
        spoil: Callable[[JudgedOutputs], None] | None = None,
        splits: int = 2,
    ) -> None:
        self.clock: Any = FakeClock()
        self.seconds, self.spoil, self.splits = seconds, spoil, splits

    def case(self, work: Any) -> Any:
        made = inputs_of(work)
        extra: dict[str, Any] = {}
        if isinstance(made, MlaSparseDecodeInputs):
            extra = {"positions": made.positions, "first_position": made.first_position}
            if made.extra_pool is not None:
                extra |= {
                    "extra_pool": HostPool(made.extra_pool),
                    "extra_indices": rows(made.extra_indices, made.extra_pool),
                }
        return SparseCase(
            work, tensor(made.q), HostPool(made.pool), rows(made.indices, made.pool),
            made.topk_length,
            scale=made.scale, q_scale=made.q_scale, **extra,
        )  # fmt: skip

    def right(self, case: Any) -> tuple[Any, Any, Any]:
        """O, and the outputs of a right kernel."""
        made = inputs_of(case.work)
        decode = isinstance(case.work, SparseDecodeWork)
        splits = self.splits if decode else 1
        starts = MlaSparseTrial(SplitInputs(made, splits), KEYS_AS_ROWS).splits
        found = rounded(made, splits=starts, order=KEYS_AS_ROWS)
        out = found.output.values.astype(ml_dtypes.bfloat16)
        lse, top = (x.values[..., 0].astype(np.float32) for x in (found.lse, found.max_logits))
        if decode:
            return (
                out,
                JudgedOutputs(out, np.ascontiguousarray(lse.swapaxes(1, 2)), None, splits),
                None,
            )
        return out[0], JudgedOutputs(out[0], lse[0], top[0]), None

    def ours(self, case: Any) -> Callable[[], Any]:
        _, outputs, _ = self.right(case)
        if self.spoil is not None:
            self.spoil(outputs)
        return self.clock.costs("mlagen", self.seconds, outputs)

    def judge(self, case: Any) -> Any:
        return SparseJudge(case, np.asarray, KEYS_AS_ROWS)


class EmulatedLab(FakeSparseLab):
    """Ours is a kernel that is emulated, on poisoned outputs, as `SparseLab` prepares it."""

    def __init__(self, kernel: Any, **more: Any) -> None:
        super().__init__()
        self.kernel, self.more, self.splits_seen = kernel, more, 0

    def judge(self, case: Any) -> Any:
        return SparseJudge(case, np.asarray, order_of(self.kernel.artifact))

    def ours(self, case: Any) -> Callable[[], Any]:
        arguments = {
            name: np.asarray(value) if isinstance(value, Tensor) else value
            for name, value in case.arguments.items()
        }
        step = self.kernel.prepare(**arguments, **self.more)
        for array in (step.output, step.lse, step.max_logits, *step.partials):
            if array is not None:
                array.fill(np.nan)
        self.splits_seen = step.splits

        def call() -> JudgedOutputs:
            step()
            self.clock.now += self.seconds
            return JudgedOutputs(step.output, step.lse, step.max_logits, step.splits)

        return call
