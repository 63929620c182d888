"""Sums of the rows of a matrix in fp32 on gfx950: four waves, a thread a row, 16 columns a tile.

| cluster | vector            | memory                   |
|---------|-------------------|--------------------------|
| read    |                   | LDS X(i) -> registers    |
| add     | sum += X(i)       | DMA X(i + slots)         |
"""

from sums.gfx950 import WAVES, Rows
from sums.problem import RowSums

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import cluster, read, roles


@schedule(problem=RowSums, target="gfx950", templates="templates")
def row_sums(k, s):
    slots = s.choice("slots", 2, 3, 4, comment="tiles in LDS: how far the DMA runs ahead")
    rows = Rows(k, s, slots=slots)
    X = rows.ring
    waves = roles(all=range(WAVES))

    with prologue():
        rows.setup()

    for i in tiles(waves):
        with cluster("read"):
            read(X, i)
        with cluster("add"):
            copy(X, i + slots)
            rows.add(i)

    with epilogue():
        rows.store()
