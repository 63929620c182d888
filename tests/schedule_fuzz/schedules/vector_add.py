"""z = x + y in fp32 on gfx950: a tile is 1,024 elements, four of each of 256 threads."""

from fuzz_vectors import Adder, Vectors

from mlagen.dsl import prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import cluster, roles


@schedule(problem=Vectors, target="gfx950", templates="templates")
def vector_add(k, s):
    slots = s.choice("slots", 2, 1, 3, comment="tiles in registers")
    ahead = s.choice("ahead", 0, 1, comment="tiles that are loaded ahead of the one that is added")
    adder = Adder(s, slots=slots)
    waves = roles(all=range(4))

    with prologue():
        adder.setup()

    for i in tiles(waves):
        with cluster("add"):
            adder.load(i + ahead)
            adder.store(i)
