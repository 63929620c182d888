"""MLA decode in the absorbed form, 576 / 512."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family.base import Builder, Family
from mlagen.family.benchmark import Benchmark
from mlagen.family.kinds import ProblemKind
from mlagen.family.workload import Workloads

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher


class MlaDecode(Family):
    """Decode over a paged cache of latent rows."""

    name = "mla_decode"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaDecodeKernel`, which builds the merge when a plan first splits work; where the
        artifact takes AITER's arguments, an `AiterDecodeKernel`."""
        from mlagen.attention.latent.facts import facts_of

        if facts_of(artifact.manifest).items == "aiter":
            from mlagen.families.mla_decode.aiter_kernel import aiter_decode_kernel

            return aiter_decode_kernel(artifact, launcher, build)
        from mlagen.families.mla_decode.kernel import decode_kernel

        return decode_kernel(artifact, launcher, build)

    def kind(self, problem_type: str) -> ProblemKind:
        """Of `MlaDecodeConfig`, the one problem."""
        from mlagen.families.mla_decode.verification import KIND

        return KIND

    def workloads(self, problem_type: str, build: Builder) -> Workloads:
        """Calls over a cache that the GPU itself fills."""
        from mlagen.families.mla_decode.workload import DecodeWorkloads

        return DecodeWorkloads(build)

    def benchmark(self, artifact: Artifact) -> Benchmark:
        """Calls over such a cache, beside other libraries."""
        from mlagen.families.mla_decode.benchmark import DecodeBenchmark

        return DecodeBenchmark()


FAMILY = MlaDecode()
