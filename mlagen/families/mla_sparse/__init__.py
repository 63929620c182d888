"""Top-k sparse MLA in the absorbed form: queries attend to the rows of a cache that lists name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family.base import Builder, Family
from mlagen.family.benchmark import Benchmark
from mlagen.family.kinds import ProblemKind
from mlagen.family.workload import Workloads

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher

_DECODE = "MlaSparseDecodeConfig"


class MlaSparse(Family):
    """Prefill and decode over listed rows."""

    name = "mla_sparse"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaSparsePrefillKernel`, or a `MlaSparseDecodeKernel`, which builds the merge when a
        call first splits work."""
        from mlagen.families.mla_sparse.kernel import sparse_kernel

        return sparse_kernel(artifact, launcher, build)

    def kind(self, problem_type: str) -> ProblemKind:
        """Of `MlaSparsePrefillConfig` and of `MlaSparseDecodeConfig`."""
        from mlagen.families.mla_sparse.verification import DECODE, PREFILL

        return DECODE if problem_type == _DECODE else PREFILL

    def workloads(self, problem_type: str, build: Builder) -> Workloads:
        """Calls over caches and lists that the GPU itself draws."""
        from mlagen.families.mla_sparse.workload import PrefillWorkloads, SparseDecodeWorkloads

        makes = SparseDecodeWorkloads if problem_type == _DECODE else PrefillWorkloads
        return makes(build)

    def benchmark(self, artifact: Artifact) -> Benchmark:
        """Such calls, beside other libraries."""
        from mlagen.families.mla_sparse.benchmark import PrefillBenchmark, SparseDecodeBenchmark

        decode = artifact.manifest.problem_type == _DECODE
        return SparseDecodeBenchmark() if decode else PrefillBenchmark()


FAMILY = MlaSparse()
