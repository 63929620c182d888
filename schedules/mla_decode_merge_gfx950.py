"""Merges the parts of split MLA decode work on gfx950.

A workgroup has sixteen waves; a wave has half a row of the output, 256 columns, four a lane.

| cluster | vector                                   | memory                |
|---------|------------------------------------------|-----------------------|
| merge   | M = max(M, LSE(i)); rescale, add to L, O | O, LSE of i + ahead   |

Parts are added in their order, so the bits do not depend on the run. It needs no LDS, as no lane
needs what another one read.
"""

from mlagen.attention.latent.block_sizes import MERGE_WARPS
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.gfx950.decode_operations import DecodeMerge
from mlagen.targets.gfx950.dsl import cluster, roles


@schedule(problem=MlaDecodeMergeConfig, target="gfx950")
def mla_decode_merge_gfx950(k, s):
    ahead = s.choice("ahead", 3, 1, 7, comment="parts in flight after the one that is merged")

    # Vector registers of a lane, which has 4 columns: few, as 16 waves share a CU.
    entry = s.entry("merge", temporaries=8)
    s.registers.tile("P", 4, "O of a part", slots=ahead + 1)
    s.registers.block("W", 1, "LSE of a part", slots=ahead + 1, align=1)
    s.registers.tile("O", 4, "O")

    merge = DecodeMerge(k, s, entry)
    waves = roles(all=range(MERGE_WARPS))

    with prologue():
        merge.setup()

    for i in tiles(waves):
        with cluster("merge"):
            merge.load(i + ahead)
            merge.add(i)

    with epilogue():
        merge.store()
