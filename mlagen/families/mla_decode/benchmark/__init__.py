"""MLA decode as `mlagen bench` times it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.families.mla_decode.benchmark.peers import PEERS
from mlagen.families.mla_decode.benchmark.work import FORMULAS, OPTIONAL, SIZES, DecodeWork
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.family.benchmark import Benchmark, Lab
from mlagen.family.peers import Peer


class DecodeBenchmark(Benchmark):
    """Calls over a cache that the GPU itself fills."""

    sizes = SIZES
    optional = OPTIONAL
    formulas = FORMULAS
    peers = tuple(PEERS)

    def work(self, problem: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> DecodeWork:
        """One call; `least` may be left out."""
        return DecodeWork(MlaDecodeConfig.from_fields(problem), **sizes, seed=seed)

    def lab(self, kernel: Any) -> Lab:
        """Of a `MlaDecodeKernel`."""
        from mlagen.families.mla_decode.benchmark.lab import DecodeLab

        return DecodeLab(kernel)

    def peer(self, name: str) -> Peer:
        return PEERS[name]()
