"""Rows folded into one number, f = 3/4 f + x: on gfx950 by way of LDS, on Hopper from a producer.

The order of the tiles shows in the result, so that one that is taken twice, left out or exchanged
does as well.
"""

from fuzz_rows import Folding, Gfx950Rows, HopperRows

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import cluster, interleave, only, read, roles
from mlagen.targets.nvidia.dsl import release


@schedule(problem=Folding, target="gfx950", templates="templates")
def fold(k, s):
    slots = s.choice("slots", 3, 2, 4, comment="tiles in LDS")
    pattern = s.choice("pattern", "even", "4x1:1", "1x8:1", comment="DMA among the additions")
    rows = Gfx950Rows(s, slots=slots)
    X = rows.ring
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)

    with prologue():
        rows.setup()
        rows.begin()

    for i in tiles(waves):
        with cluster("read"):
            read(X, i)
        with cluster("fold"):
            with only(waves["lower"]):
                interleave(rows.fold(i), copy(X, i + slots - 1), pattern=pattern)
            with only(waves["upper"]):
                rows.fold(i)

    with epilogue():
        rows.store()


@schedule(problem=Folding, target="sm_90a", templates="templates")
def fold_sm90(k, s):
    stages = s.choice("stages", 3, 2, 4, comment="tiles in SMEM")
    producer = s.role("producer", warpgroups=1, registers=40, single=True)
    folders = s.role("folders", warpgroups=1, registers=232)
    rows = HopperRows(s, producer, folders, stages=stages)

    with prologue(producer):
        rows.setup()
    for i in tiles(producer):
        copy(rows.feed, i)

    with prologue(folders):
        rows.setup()
        rows.begin()
    for i in tiles(folders):
        rows.fold(i)
        release(rows.feed, i)
    with epilogue(folders):
        rows.store()
