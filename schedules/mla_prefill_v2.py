"""MLA prefill on gfx950 in the expanded form, 192 / 128: eight waves, 32 query rows each.

The table is that of `tables/streamed_prefill.py`. Waves 4..7 lag waves 0..3 by half a tile; the
lower half fetches K, the upper one V:

| cluster | matrix  | vector / transcendental   | memory                                          |
|---------|---------|---------------------------|-------------------------------------------------|
| A       | PV(i-1) |                           | rest of V(i-1); first fragments of K(i)         |
|         | QK(i)   |                           | rest of K(i); DMA: K(i+1), or V(i+1) in B       |
| B       |         | mask(i), maximum, c S - M,| first fragments of V(i); pages of the next DMA, |
|         |         | rescale O, exp2, sum, P(i)| where paged                                     |

LDS has 163840 of 163840 bytes: two tiles of 128 keys of K, 384 bytes each, 128 columns without
position and 64 rotary ones, and two of V, 256 bytes. Of 256 vector registers a lane S, then P, has
64, O 64, Q 48, and fragments of K and V on their way 16 each.

Here stand the two knobs that only MLA has: a grid whose workgroups walk work items that the host
has planned, and arguments as AITER's host code passes them.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_prefill.gfx950.form import streamed_form
from mlagen.families.mla_prefill.problem import KV_BLOCKS, MlaProblem
from mlagen.schedules.tables.streamed_prefill import streamed_prefill


def form(k, s):
    """The problem as the table takes it."""
    grid = s.choice("grid", "static", "persistent", comment="a workgroup is a tile, or walks items")
    arguments = s.choice("arguments", "mlagen", "aiter", comment="whose: for host code of AITER's")
    return streamed_form(k, persistent=grid == "persistent", aiter=arguments == "aiter")


@schedule(problem=MlaProblem, target="gfx950")
def mla_prefill_v2(k, s):
    streamed_prefill(k, s, KV_BLOCKS[k.dtype], form)
