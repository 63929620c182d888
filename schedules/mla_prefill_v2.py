"""MLA prefill on gfx950 in the expanded form, 192 / 128: eight waves, 32 query rows each.

Its table, layout and budget are those of `tables/streamed_prefill.py`: K, 128 columns without
position and 64 rotary ones, and V pass through small bands of registers. Here stand the two knobs
that only MLA has: a grid whose workgroups walk work items that the host has planned, and arguments
as AITER's host code passes them.
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
