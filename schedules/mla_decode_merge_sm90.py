"""Merges the parts of split MLA decode work on Hopper. A block has sixteen warps; each has half a
row of the output or a share of its splits.

A tile is four splits a warp: their loads are in flight together, those of the first tile while the
LSE of all splits is computed. Warps add up in order, so the bits do not depend on the run. The
kernel may be launched before the decode kernel has ended, and waits for it.
"""

from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.sm_90a.operations import MlaDecodeMerge


@schedule(problem=MlaDecodeMergeConfig, target="sm_90a")
def mla_decode_merge_sm90(k, s):
    warps = s.role("merge", warpgroups=4, registers=64)
    m = MlaDecodeMerge(k, s, warps)

    with prologue(warps):
        m.setup()
        m.load()
        m.log_sum()
    for i in tiles(warps):
        m.add(i)
        m.load(i)  # for the next pass; after the last one it loads nothing
    with epilogue(warps):
        m.finish()
