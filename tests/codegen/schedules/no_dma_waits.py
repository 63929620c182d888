"""The race of the upstream port: LDS reads are drained, the DMA counter is left to luck."""

from prefill_parts import parts

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mha_prefill.problem import MhaProblem
from mlagen.targets.gfx950.dsl import Wait, cluster, interleave, read, roles


@schedule(problem=MhaProblem, target="gfx950")
def no_dma_waits(k, s):
    """mha_prefill_v2 without the vmcnt waits before the closing barriers."""
    K, V, attention = parts(k, s)
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)
    with prologue():
        attention.setup()
        attention.load_queries()
    for i in tiles(waves):
        with cluster("A"):
            interleave(attention.qk(i), attention.tail_softmax(i - 1))
        with cluster("B", wait=Wait(lgkm=0)):
            copy(K, i + 2)
            read(V, i - 1)
            attention.mask(i)
        with cluster("C", priority=1):
            interleave(attention.pv(i - 1), attention.partial_softmax(i))
            attention.rescale(i)
        with cluster("D", wait=Wait(lgkm=0)):
            copy(V, i + 1)
            read(K, i + 1)
            attention.prescale(i + 1)
    with epilogue():
        attention.no_tiles()
        attention.normalise()
        attention.store()
