"""RMSNorm of rows in bf16, on gfx950 and on Hopper: one problem, a schedule each.

gfx950: the four waves of a workgroup share a row, eight columns a lane. They add their squares
across lanes by DPP, and across waves through an exchange in LDS.

| cluster | vector                                    | memory                          |
|---------|-------------------------------------------|---------------------------------|
| square  | X(i) -> fp32; sum of this wave's squares  | fetch X(i + ahead); SUMS(i)     |
| scale   | root of the mean; w * x * root -> bf16    | LDS SUMS(i); store a row of out |

Hopper: each of four warps has a row of its own, which its lanes add up by shfl.sync.
"""

from norms.gfx950 import WAVES, Norm
from norms.problem import RmsNorm
from norms.sm_90a import NormOfWarps

from mlagen.dsl import prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import cluster, roles


@schedule(problem=RmsNorm, target="gfx950", templates="templates")
def rmsnorm(k, s):
    ahead = s.choice("ahead", 2, 1, 3, comment="rows that are on their way while one is computed")
    rows = s.choice("rows", 8, 4, 16, comment="rows of a workgroup")
    norm = Norm(s, ahead=ahead, rows=rows)
    waves = roles(all=range(WAVES))

    with prologue():
        norm.setup()
    for i in tiles(waves):
        with cluster("square"):
            norm.load(i + ahead)
            norm.square(i)
        with cluster("scale"):
            norm.total(i)
            norm.scale(i)


@schedule(problem=RmsNorm, target="sm_90a", templates="templates")
def rmsnorm_sm90(k, s):
    rows = s.choice("rows", 8, 4, 16, comment="rows of a warp")
    warps = s.role("warps", warpgroups=1, registers=128)
    norm = NormOfWarps(s, warps, rows=rows)

    with prologue(warps):
        norm.setup()
    for i in tiles(warps):
        norm.load(i)
        norm.scale(i)
