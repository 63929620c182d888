"""Sums of the rows of a matrix in fp32 on Hopper: one thread fetches, 128 threads add."""

from sums.problem import RowSums
from sums.sm_90a import Rows

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.targets.nvidia.dsl import release


@schedule(problem=RowSums, target="sm_90a", templates="templates")
def row_sums_sm90(k, s):
    stages = s.choice("stages", 4, 2, 3, 6, comment="tiles in SMEM")
    producer = s.role("producer", warpgroups=1, registers=40, single=True)
    adders = s.role("adders", warpgroups=1, registers=232)
    rows = Rows(k, s, producer, adders, stages=stages)

    with prologue(producer):
        rows.setup()
    for i in tiles(producer):
        copy(rows.feed, i)

    with prologue(adders):
        rows.setup()
    for i in tiles(adders):
        rows.add(i)
        release(rows.feed, i)
    with epilogue(adders):
        rows.store()
