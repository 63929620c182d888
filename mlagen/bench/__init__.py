"""How fast a kernel is on the GPU at hand, beside other libraries on the same tensors.

One process, one set of tensors a workload, the contenders interleaved, L2 flushed before each timed
call. Who is wrong is not timed. What is timed, a family says (`mlagen.family.benchmark`).
"""

from mlagen.bench.report import BenchReport, BenchResult, BenchRow
from mlagen.bench.run import bench

__all__ = ["BenchReport", "BenchResult", "BenchRow", "bench"]
