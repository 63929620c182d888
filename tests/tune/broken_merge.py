"""The reduce kernel with knobs that break it: a last step for one line of four, or endless."""

from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.split_merge.gfx950.combine import Merge
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.targets.gfx950.dsl import cluster, roles


@schedule(problem=MlaReduceConfig, target="gfx950")
def broken_merge(k, s):
    how = s.choice("how", "right", "wrong", "endless", "raises")
    ahead = s.choice("ahead", 1, 2)
    if how == "raises" and ahead == 2:
        raise ZeroDivisionError("planted")
    while how == "endless":
        pass
    entry = s.entry("chunk of lines", "group", temporaries=8)
    s.registers.tile("P", 16, "partial O", slots=ahead + 1)
    s.registers.tile("W", 4, "LSE, then weights", slots=ahead + 1)
    for name, count in (("O", 16), ("M", 4), ("L", 4)):
        s.registers.tile(name, count, name)
    merge = Merge(k, s, entry, waves=1)
    workers = roles(all=range(1))
    with prologue():
        merge.setup()
    for i in tiles(workers):
        with cluster("merge"):
            merge.load(i + ahead)
            merge.find(i + ahead + 1)
            merge.add(i)
    with epilogue():
        if how == "wrong":  # what an operation's template computes is for its oracle to see
            whole = merge.operands
            merge.operands = {**whole, "O": whole["O"][:4], "row_sum": whole["row_sum"][:1]}
            merge.normalise()
            merge.operands = whole
        else:
            merge.normalise()
        merge.store()
