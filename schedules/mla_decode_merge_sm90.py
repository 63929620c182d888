"""Merges the parts of split MLA decode work on Hopper: one row and 128 columns a block.

A tile is 64 splits, sixteen a warp: their loads are in flight together, those of the first tile
while the LSE of all splits is found. Warps add up in order, so the bits do not depend on the run.
It may be launched before the decode kernel has ended, which it waits for.
"""

from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.kernels.mla_decode_merge import MlaDecodeMerge
from mlagen.problem import MlaDecodeMergeConfig


@schedule(problem=MlaDecodeMergeConfig, target="sm_90a")
def mla_decode_merge_sm90(k, s):
    warps = s.role("merge", warpgroups=1, registers=256)
    m = MlaDecodeMerge(k, s, warps)

    with prologue(warps):
        m.place()
    for i in tiles(warps):
        m.add(i)
        m.load(i + 1)
        m.log_sum(i + 1)
    with epilogue(warps):
        m.finish()
