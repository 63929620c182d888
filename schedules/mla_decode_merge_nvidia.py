"""Merges the parts of split MLA decode work on NVIDIA's GPUs. A block has sixteen warps; each has
half a row of the output or a share of its splits.

| merge, tile i: four splits a warp           |
|---------------------------------------------|
| O += exp2(LSE - L) O of the splits of i     |
| LSE and O of the splits of i + 1, in flight |

| memory    | what lies there                                                                  |
|-----------|----------------------------------------------------------------------------------|
| SMEM      | 16384 of 232448 bytes: half a row of fp32 a warp, for warps that share a line    |
| registers | a thread: merge 64; of them O 8, of the splits in flight O 32 and LSE 4          |

Loads of a tile are in flight together, those of the first one while the LSE of all splits is found.
Warps add up in order, so the bits do not depend on the run. It may be launched before the decode
kernel has ended, which it waits for. No wait is by hand.
"""

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.nvidia.combine import BLACKWELL, HOPPER, MlaDecodeMerge


@schedule(problem=MlaDecodeMergeConfig, target="sm_90a")
def mla_decode_merge_sm90(k, s):
    """Merges the parts of split MLA decode work on Hopper."""
    merge(k, s, HOPPER, slot_rows=BLOCK_ROWS)


@schedule(problem=MlaDecodeMergeConfig, target="sm_100a")
def mla_decode_merge_sm100(k, s):
    """Merges the parts of split MLA decode work on Blackwell."""
    merge(k, s, BLACKWELL, slot_rows=0)  # 64, or 128 of a CTA pair: the call says it


def merge(k, s, symbol, slot_rows):
    warps = s.role("merge", warpgroups=4, registers=64)

    # Splits a warp has in flight: with more, no second block fits on an SM. Columns of a lane.
    splits, columns = 4, k.d_v // 64

    # SMEM: half a row in fp32 a warp, and what a sink leaves of it. Registers of a thread; a few of
    # addresses come besides.
    s.smem.room("sums of warps", 16 * k.d_v // 2 * 4)
    if k.sink:
        s.smem.room("factors", 16 * 4)
    s.named("acc", ".f32", columns, "this lane's columns of O")
    s.named("weight", ".f32", splits, "LSE of the splits in flight")
    s.named("taken", ".f32", splits * columns, "their columns of O")
    m = MlaDecodeMerge(k, s, warps, symbol, slot_rows=slot_rows)

    with prologue(warps):
        m.setup()
        m.load()
        m.log_sum()
    for i in tiles(warps):
        m.add(i)
        m.load(i)  # for the next pass; after the last one it loads nothing
    with epilogue(warps):
        m.finish()
