"""How fast a kernel is on the GPU at hand, beside other libraries on the same tensors.

One process, one set of tensors a workload, the contenders interleaved, L2 flushed before each timed
call. Who is wrong is not timed. `mlagen bench` is this on the command line.
"""

from mlagen.bench.report import FORMULAS, BenchReport, Result, Row
from mlagen.bench.run import bench
from mlagen.bench.workload import Workload, workloads

__all__ = ["FORMULAS", "BenchReport", "Result", "Row", "Workload", "bench", "workloads"]
