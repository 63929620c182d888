"""Sparse MLA on a GPU: small calls and the tuned one against both oracles, then timed.

Tensors and judge are those of `mlagen bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from mlagen.artifact import Artifact
from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_arrays import to_gpu
from mlagen.bench.workload import BenchedWorkload, Second, built_all
from mlagen.errors import WrongResultError
from mlagen.families.mla_decode.unit import MERGE_KERNELS
from mlagen.families.mla_sparse.benchmark.case import SparseCase
from mlagen.families.mla_sparse.benchmark.judge import outside_oracles
from mlagen.families.mla_sparse.benchmark.lab import SparseLab
from mlagen.families.mla_sparse.benchmark.work import (
    DECODE_SIZES,
    PREFILL_SIZES,
    PrefillWork,
    SparseDecodeWork,
)
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.inputs import MlaSparseInputs
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.family.base import Builder

# Lengths of lists around a tile of 64 keys, and of several, each in a list of 450 places; every
# fourth list names nothing.
_LENGTHS = (450, 1, 63, 64, 65, 129, 0, 450)
_TOPK, _CACHE_ROWS = 450, 1024
DEFAULTS = {"keys": 32768, "topk": 2048}  # of calls that are tuned
PREFILL_ROWS, DECODE_BATCH = 1024, 64


class SparseWorkload(BenchedWorkload):
    """Calls of `PrefillWork` or of `SparseDecodeWork`."""

    @property
    def bytes(self) -> int:
        """That a call reads and writes, each row once."""
        return int(self.work.distinct_bytes)

    def lab(self, artifact: Artifact) -> SparseLab:
        return SparseLab(sparse_kernel(artifact, build=self.second))

    def check_small(self, lab: SparseLab, seed: int) -> None:
        config = self.work.config
        sink = [(-1.0) ** head for head in range(config.num_heads)]
        if isinstance(config, MlaSparsePrefillConfig):
            for data in ("realistic", "late_max"):
                inputs = mla_sparse_prefill_inputs(
                    config, rows=len(_LENGTHS), topk=_TOPK, cache_rows=_CACHE_ROWS, data=data,
                    seed=seed, lengths=_LENGTHS, sink=sink,
                )  # fmt: skip
                self._small(lab, data, inputs)
            return
        # Sinks of split keys are the merge's: it is not what is tuned.
        for data, splits, own in (("realistic", 1, sink), ("late_max", 3, None)):
            made = mla_sparse_decode_inputs(
                config, batch=len(_LENGTHS), topk=_TOPK, cache_rows=_CACHE_ROWS, data=data,
                seed=seed, lengths=_LENGTHS, sink=own,
            )  # fmt: skip
            self._small(lab, data, made, splits)

    def _small(
        self, lab: SparseLab, data: str, inputs: MlaSparseInputs, splits: int | None = None
    ) -> None:
        """One call. Outputs and workspaces are poisoned before."""
        config = self.work.config
        given = {each.name: getattr(inputs, each.name) for each in fields(inputs)}
        del given["config"]
        arguments = {
            name: value if isinstance(value, float) else to_gpu(value)
            for name, value in given.items()
            if value is not None
        }
        if splits is not None:
            arguments["splits"] = splits
        output = lab.poisoned(**arguments, checked=True)()
        lab.wait()
        heads = sorted({0, config.num_heads // 2, config.num_heads - 1})
        host = {name: lab.host(tensor) for name, tensor in output.by_name().items()}
        order = order_of(lab.kernel.artifact)
        if wrong := outside_oracles(inputs, host, order, splits=output.splits, heads=heads):
            raise WrongResultError(f"lengths {_LENGTHS}, {data}: {wrong}")

    def prepared(self, lab: SparseLab, cases: Sequence[SparseCase]) -> list[Callable[[], Any]]:
        return [lab.kernel.prepare(**case.arguments) for case in cases]


class PrefillWorkloads:
    """Makes the calls of sparse prefill."""

    sizes: tuple[str, ...] = PREFILL_SIZES
    lists: tuple[str, ...] = ()

    def __init__(self, build: Builder) -> None:
        self._build = build

    def beside(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """None: a call launches the artifact alone."""
        return ()

    def workload(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        beside: Sequence[Artifact] = (),
    ) -> SparseWorkload:
        """The call of these fields and sizes."""
        config = MlaSparsePrefillConfig.from_fields(problem)
        work = PrefillWork(config=config, **{"rows": PREFILL_ROWS, **DEFAULTS, **shape})
        return SparseWorkload(work, self._build)


class SparseDecodeWorkloads:
    """Makes the calls of sparse decode; `build` the kernel that they launch besides."""

    sizes: tuple[str, ...] = DECODE_SIZES
    lists: tuple[str, ...] = ()

    def __init__(self, build: Builder) -> None:
        self._build = build

    def beside(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """The kernel that merges split work."""
        manifest = artifact.manifest
        return built_all(self._build, _seconds(manifest.problem, manifest.target))

    def workload(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        beside: Sequence[Artifact] = (),
    ) -> SparseWorkload:
        """The call of these fields and sizes."""
        config = MlaSparseDecodeConfig.from_fields(problem)
        work = SparseDecodeWork(config=config, **{"batch": DECODE_BATCH, **DEFAULTS, **shape})
        targets = [artifact.manifest.target for artifact in beside]
        return SparseWorkload(work, self._build, _seconds(problem, *targets), beside)


def _seconds(problem: Mapping[str, Any], *targets: str) -> tuple[Second, ...]:
    return tuple((MERGE_KERNELS[one], {"num_heads": problem["num_heads"]}) for one in targets)
