"""Sparse MLA as `mlagen bench` times it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.families.mla_sparse.benchmark.peers import PEERS
from mlagen.families.mla_sparse.benchmark.work import (
    DECODE_OPTIONAL,
    DECODE_SIZES,
    FORMULAS,
    PREFILL_OPTIONAL,
    PREFILL_SIZES,
    PrefillWork,
    SparseDecodeWork,
)
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.family.benchmark import Benchmark, Lab, Work
from mlagen.family.peers import Peer


class _SparseBenchmark(Benchmark):
    """Calls over caches and lists that the GPU itself draws."""

    formulas = FORMULAS
    peers = tuple(PEERS)

    def lab(self, kernel: Any) -> Lab:
        """Of a `MlaSparsePrefillKernel` or a `MlaSparseDecodeKernel`."""
        from mlagen.families.mla_sparse.benchmark.lab import SparseLab

        return SparseLab(kernel)

    def peer(self, name: str) -> Peer:
        return PEERS[name]()


class PrefillBenchmark(_SparseBenchmark):
    """Calls of prefill."""

    sizes, optional = PREFILL_SIZES, PREFILL_OPTIONAL

    def work(self, problem: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> Work:
        """One call of these sizes."""
        config = MlaSparsePrefillConfig.from_fields(problem)
        return PrefillWork(config=config, seed=seed, **sizes)


class SparseDecodeBenchmark(_SparseBenchmark):
    """Calls of decode."""

    sizes, optional = DECODE_SIZES, DECODE_OPTIONAL

    def work(self, problem: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> Work:
        """One call of these sizes."""
        config = MlaSparseDecodeConfig.from_fields(problem)
        return SparseDecodeWork(config=config, seed=seed, **sizes)
