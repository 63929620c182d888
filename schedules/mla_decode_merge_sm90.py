"""Merges the parts of split MLA decode work on Hopper: one row and 128 columns a block.

A tile is 16 splits, four a warp: their loads are in flight together. Warps add up in order, so the
bits do not depend on the run, and parts without keys are never read.
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
        m.log_sum()
    for i in tiles(warps):
        m.add(i)
    with epilogue(warps):
        m.finish()
