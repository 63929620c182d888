"""The reduce kernel with knobs that break it: faster without its last step, or endless."""

from mlagen.dsl import cluster, epilogue, prologue, roles, schedule, tiles
from mlagen.kernels.mla_prefill_reduce import Merge
from mlagen.problem import MlaReduceConfig


@schedule(problem=MlaReduceConfig, target="gfx950")
def broken_merge(k, s):
    how = s.choice("how", "right", "wrong", "endless", "raises")
    ahead = s.choice("ahead", 1, 2)
    if how == "raises" and ahead == 2:
        raise ZeroDivisionError("planted")
    while how == "endless":
        pass
    merge = Merge(k, s, ahead=ahead, waves=1)
    workers = roles(all=range(1))
    with prologue():
        merge.setup()
    for i in tiles(workers):
        with cluster("merge"):
            merge.load(i + ahead)
            merge.find(i + ahead + 1)
            merge.add(i)
    with epilogue():
        if how != "wrong":
            merge.normalise()
        merge.store()
