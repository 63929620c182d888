"""Top-k sparse MLA prefill on Hopper, over rows that each query's list names.

Up to 32 heads take the schedule of `schedules/tables/swap_ab_gathered.py`, more that of
`schedules/shared/queries_as_rows.py`, with blocks that take one query after another.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a.operations import (
    check_products,
    prefill_by_queries,
    row_form,
)
from mlagen.schedules.shared.queries_as_rows import queries_as_rows
from mlagen.schedules.tables.swap_ab_gathered import swap_ab_gathered


@schedule(problem=MlaSparsePrefillConfig, target="sm_90a")
def mla_sparse_prefill_sm90(k, s):
    check_products(k)
    few = s.choice("keys_as_rows", *((1, 0) if k.num_heads <= 32 else (0,)),
                   comment="keys are the rows of products, heads their columns")  # fmt: skip
    if few:
        swap_ab_gathered(k, s, False)
    else:
        stored = row_form(k)
        queries_as_rows(k, s, stored, prefill_by_queries, not stored, (2, 1))
