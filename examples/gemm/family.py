"""GEMM as a family of kernels: what mlagen's tools ask of it."""

from __future__ import annotations

from gemm.benchmark import GemmBenchmark
from gemm.verification import GemmKernel, GemmKind
from mlagen.artifact import Artifact
from mlagen.family import Builder, Family
from mlagen.launch import EmulatedLauncher, Launcher


class GemmFamily(Family):
    """Matrix products. A schedule's file registers it."""

    name = "gemm"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> GemmKernel:
        """The artifact as a function of arrays, in the emulator unless told otherwise."""
        return GemmKernel(artifact, launcher or EmulatedLauncher())

    def kind(self, problem_type: str) -> GemmKind:
        """Of `GemmConfig`, the one problem."""
        return GemmKind()

    def benchmark(self, artifact: Artifact) -> GemmBenchmark:
        """On a GPU of the artifact's target."""
        return GemmBenchmark()


GEMM = GemmFamily()
