"""Merges the partial results of split MLA prefill work on gfx950.

A line is 128 columns of one row and head: 512 bytes of partial O. The lines of a group are one run
of memory in every partial; a wave merges 8 of them, whatever heads they are.

| cluster | vector                                    | memory                                     |
|---------|-------------------------------------------|--------------------------------------------|
| merge   | M = max(M, LSE(i)); rescale, add to L, O  | row of i + ahead + 1; O, LSE of i + ahead  |

The merge is bound by bandwidth: half a wave reads a whole line, 16 bytes a lane, and waves of few
registers leave room for many on a CU. It needs no LDS, as no lane needs what another one read.
"""

from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.split_merge.gfx950.combine import Merge
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.targets.gfx950.dsl import cluster, roles


@schedule(problem=MlaReduceConfig, target="gfx950")
def mla_prefill_reduce(k, s):
    ahead = s.choice("ahead", 1, 2, 3, comment="partials in flight after the one that is merged")
    waves = s.choice("waves", 1, 2, 4, 8, comment="waves of a workgroup, 8 lines each")

    # Vector registers of a lane, which has 4 columns of 4 lines; few, so that many waves share a
    # SIMD: 8 temporaries, these, 3 to 5 of addresses. P and W are rings by partial. Heads of one
    # line have an LSE each; where a lane's four lines are one head they have one.
    lses = 4 // k.head_lines
    entry = s.entry("chunk of lines", "group", temporaries=8)
    s.registers.tile("P", 16, "partial O, 4 columns of 4 lines", slots=ahead + 1)
    s.registers.tile("W", max(lses, 2), "LSE of the partial's lines, then its weights",
                     slots=ahead + 1)  # fmt: skip
    s.registers.tile("O", 16, "O, 4 columns of 4 lines")
    s.registers.tile("M", lses, "largest LSE so far")
    s.registers.tile("L", lses, "sum of weights")

    merge = Merge(k, s, entry, waves=waves)
    workers = roles(all=range(waves))

    with prologue():
        merge.setup()

    for i in tiles(workers):
        with cluster("merge"):
            merge.load(i + ahead)
            merge.find(i + ahead + 1)
            merge.add(i)

    with epilogue():
        merge.normalise()
        merge.store()
