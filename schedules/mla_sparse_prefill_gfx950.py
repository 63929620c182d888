"""Top-k sparse MLA prefill on gfx950, over rows that each query's list names.

A workgroup has up to 64 heads of a query. The schedule is that of
`schedules/shared/listed_rows.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.shared.listed_rows import listed_rows


@schedule(problem=MlaSparsePrefillConfig, target="gfx950")
def mla_sparse_prefill_gfx950(k, s):
    listed_rows(k, s, (6, 4, 2))
