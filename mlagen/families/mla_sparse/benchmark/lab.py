"""Tensors of sparse MLA on an NVIDIA GPU, filled there, and the kernel on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_lab import TorchLab
from mlagen.families.mla_sparse.benchmark.case import SparseCase
from mlagen.families.mla_sparse.benchmark.judge import JudgedOutputs, SparseJudge
from mlagen.families.mla_sparse.benchmark.torch_case import CaseMaker
from mlagen.families.mla_sparse.benchmark.torch_pool import Drawer
from mlagen.families.mla_sparse.benchmark.work import Work
from mlagen.families.mla_sparse.kernel import MlaSparseDecodeKernel, MlaSparsePrefillKernel


class SparseLab(TorchLab):
    """`kernel` on torch's current GPU. MissingError without torch or a GPU."""

    def __init__(self, kernel: MlaSparsePrefillKernel | MlaSparseDecodeKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def case(self, work: Work) -> SparseCase:
        torch = self.torch
        made = torch.Generator("cuda").manual_seed(work.seed)
        make = partial(self.new_cache, work, kind=torch.uint8)
        return CaseMaker(work, Drawer(torch, made, make)).case()

    def ours(self, case: SparseCase) -> Callable[[], Any]:
        return self.poisoned(**case.arguments)

    def poisoned(self, **arguments: Any) -> Callable[[], JudgedOutputs]:
        """A call of these arguments, prepared; what it writes is NaN until it is called."""
        step = self.kernel.prepare(**arguments)
        for tensor in (step.output, step.lse, step.max_logits, *step.partials):
            if tensor is not None:
                tensor.fill_(float("nan"))
        outputs = JudgedOutputs(step.output, step.lse, step.max_logits, step.splits)

        def call() -> JudgedOutputs:
            step()
            return outputs

        return call

    def judge(self, case: SparseCase) -> SparseJudge:
        return SparseJudge(case, self.host, order_of(self.kernel.artifact))
