"""A workgroup would end inside the tile loop."""

from prefill_parts import parts

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mha_prefill.problem import MhaProblem
from mlagen.targets.gfx950.dsl import cluster, interleave, read, roles


@schedule(problem=MhaProblem, target="gfx950")
def late_exit(k, s):
    """mha_prefill_v2 that looks at its sequence in every tile."""
    K, V, attention = parts(k, s)
    s.plain = None  # the plain order has no such row: without one, this is met where code is made
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)
    with prologue():
        attention.setup()
        attention.load_queries()
    for i in tiles(waves):
        with cluster("A"):
            interleave(attention.qk(i), attention.tail_softmax(i - 1))
        with cluster("B"):
            copy(K, i + 2)
            read(V, i - 1)
            attention.mask(i)
        with cluster("C", priority=1):
            interleave(attention.pv(i - 1), attention.partial_softmax(i))
            attention.rescale(i)
        with cluster("D"):
            copy(V, i + 1)
            read(K, i + 1)
            attention.prescale(i + 1)
            attention.setup()
    with epilogue():
        attention.no_tiles()
        attention.normalise()
        attention.store()
