"""Looking into a kernel: what each cluster does, its registers, LDS, waits and instructions.

    from mlagen.inspect import inspect_path
    for cluster in inspect_path("kernel.co").clusters:
        print(cluster.label, cluster.kind)

It reads artifacts and machine code, never schedules or the generator.
"""

from mlagen.inspect.compare import CodeComparison, compare
from mlagen.inspect.model import CodeCluster, Inspection
from mlagen.inspect.read import inspect_path

__all__ = ["CodeCluster", "CodeComparison", "Inspection", "compare", "inspect_path"]
