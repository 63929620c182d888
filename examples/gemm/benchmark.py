"""GEMM as `mlagen bench` times it, beside torch.matmul."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gemm.oracles import exact, rounded
from gemm.problem import BF16, GemmConfig, GemmInputs, check_sizes
from gemm.verification import GemmKernel
from mlagen.bench.accuracy import PEER_LIMIT, outside, relative
from mlagen.bench.torch_lab import TorchLab
from mlagen.family.benchmark import Benchmark, Judgement, Lab
from mlagen.family.peers import Peer, imported, require, version
from mlagen.launch import gpu_launcher
from mlagen.problem.expected import compare

FORMULAS = {
    "flop": "2 * m * n * k",
    "bytes": "(m + n) * k * 2 + m * n * bytes of an element of C",
    "error": "norm(C - exact) / norm(exact) over the rows that are judged",
}
JUDGED = 16  # rows of C, from the first to the last


@dataclass(frozen=True)
class GemmWork:
    """One product. ConfigError for sizes that the kernels cannot serve."""

    config: GemmConfig
    m: int
    n: int
    k: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_sizes(**self.sizes)

    @property
    def sizes(self) -> dict[str, int]:
        return {"m": self.m, "n": self.n, "k": self.k}

    @property
    def flop(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        return (self.m + self.n) * self.k * BF16 + self.m * self.n * self.config.output_bytes

    def to_fields(self) -> dict[str, Any]:
        return {**self.config.to_fields(), **self.sizes, "seed": self.seed}

    def __str__(self) -> str:
        return f"m={self.m} n={self.n} k={self.k} {self.config.output_dtype}"


@dataclass(frozen=True, eq=False)
class Case:
    """A [m, k] and B [n, k], which all contenders share; each has a C of its own."""

    work: GemmWork
    a: Any
    b: Any


class GemmJudge:
    """Some rows of C, with all their columns, on the host. `host`: copies a tensor there."""

    def __init__(self, case: Case, host: Callable[[Any], npt.NDArray[Any]]) -> None:
        self.host = host
        self.rows = np.unique(np.linspace(0, case.work.m - 1, JUDGED).astype(int)).tolist()
        self.inputs = GemmInputs(case.work.config, host(case.a[self.rows]), host(case.b))
        self.exact = exact(self.inputs)

    def ours(self, output: Any) -> Judgement:
        """These rows within the bounds of both oracles, and no NaN in any other."""
        unwritten = int((output != output).sum())
        if unwritten:
            return Judgement(float("inf"), f"{unwritten} numbers are NaN")
        c = self._rows(output)
        wrong = outside(compare(self.exact, c), compare(rounded(self.inputs), c))
        return replace(relative(self.exact, c), wrong=wrong)

    def peer(self, output: Any) -> Judgement:
        """A small relative error of these rows."""
        return relative(self.exact, self._rows(output), PEER_LIMIT["bf16"])

    def _rows(self, output: Any) -> npt.NDArray[Any]:
        return self.host(output[self.rows])[None, :, None]


class GemmLab(TorchLab):
    """A built GEMM on torch's current GPU, of either vendor."""

    def __init__(self, kernel: GemmKernel) -> None:
        super().__init__()
        self.artifact = kernel.artifact

    def case(self, work: GemmWork) -> Case:
        made = self.torch.Generator("cuda").manual_seed(work.seed)
        a, b = (
            self.torch.randn(rows, work.k, device="cuda", generator=made).bfloat16()
            for rows in (work.m, work.n)
        )
        return Case(work, a, b)

    def ours(self, case: Case) -> Callable[[], Any]:
        work = case.work
        kinds = {"bf16": self.torch.bfloat16, "fp32": self.torch.float32}
        c = self.torch.full(
            (work.m, work.n), float("nan"), device="cuda", dtype=kinds[work.config.output_dtype]
        )
        launch = gpu_launcher(self.artifact.manifest.target).prepare(
            self.artifact, tensors={"a": case.a, "b": case.b, "c": c}, scalars=work.sizes,
            sizes=work.sizes,
        )  # fmt: skip

        def call() -> Any:
            launch()
            return c

        return call

    def judge(self, case: Case) -> GemmJudge:
        return GemmJudge(case, self.host)


class TorchMatmul:
    """torch.matmul, which takes the vendor's library."""

    name = "torch_matmul"
    torch: Any

    def load(self) -> str:
        self.torch = imported("torch", "pip install torch")
        return version(self.torch)

    def prepare(self, case: Case) -> Callable[[], Any]:
        require(case.work.config.output_dtype == "bf16", "C in bf16 only")
        out = self.torch.empty(case.work.m, case.work.n, dtype=case.a.dtype, device=case.a.device)
        return partial(self.torch.matmul, case.a, case.b.T, out=out)


class GemmBenchmark(Benchmark):
    """Products of normal numbers."""

    sizes = ("m", "n", "k")
    formulas = FORMULAS
    peers = (TorchMatmul.name,)

    def work(self, problem: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> GemmWork:
        return GemmWork(GemmConfig.from_fields(problem), **sizes, seed=seed)

    def lab(self, kernel: GemmKernel) -> Lab:
        return GemmLab(kernel)

    def peer(self, name: str) -> Peer:
        return TorchMatmul()
