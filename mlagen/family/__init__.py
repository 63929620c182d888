"""What a family of kernels brings to mlagen's tools, and where tools find it.

A family is a set of problems that are solved, run, checked and timed alike: prefill of one form of
attention, a matrix product. Tools ask `family_of(artifact)`; they know no family by name.
"""

from mlagen.family.base import Builder, Family
from mlagen.family.benchmark import Benchmark
from mlagen.family.covering import Call, Covering, steady_tiles, tile_counts
from mlagen.family.kinds import Chosen, Group, ProblemKind, Sample, Size, TileWalk, Trial
from mlagen.family.mutants import MutantCall, MutantInputs
from mlagen.family.registry import family_named, family_of, register, shipped
from mlagen.family.workload import Workload, Workloads

Kind = ProblemKind  # its name of version 0.1

__all__ = [
    "Benchmark",
    "Builder",
    "Call",
    "Chosen",
    "Covering",
    "Family",
    "Group",
    "Kind",
    "MutantCall",
    "MutantInputs",
    "ProblemKind",
    "Sample",
    "Size",
    "TileWalk",
    "Trial",
    "Workload",
    "Workloads",
    "family_named",
    "family_of",
    "register",
    "shipped",
    "steady_tiles",
    "tile_counts",
]
