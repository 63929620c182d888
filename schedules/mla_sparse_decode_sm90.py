"""Top-k sparse MLA decode on Hopper, over rows that the list of each new token names.

A block has a token's heads, or 64 of them, and a split of its keys: those of a first cache, then
those of a second one. Up to 32 heads take the schedule of `schedules/shared/keys_as_rows.py`, more
that of `schedules/shared/queries_as_rows.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.sm_90a.operations import (
    decode_by_keys,
    decode_by_queries,
    row_form,
)
from mlagen.schedules.shared.keys_as_rows import keys_as_rows
from mlagen.schedules.shared.queries_as_rows import queries_as_rows


@schedule(problem=MlaSparseDecodeConfig, target="sm_90a")
def mla_sparse_decode_sm90(k, s):
    few = s.choice("keys_as_rows", *((1, 0) if k.num_heads <= 32 else (0,)),
                   comment="keys are the rows of products, heads their columns")  # fmt: skip
    if few:
        keys_as_rows(k, s, row_form(k), decode_by_keys, True)  # rope last
    else:
        stored = row_form(k)
        # Where scales of columns lie in the rows, ptxas spills these with wider pieces, and spills
        # others with narrower ones.
        in_rows, paged = k.rows in ("v32", "model1"), k.rows == "model1"
        long = k.q_len > 2
        narrow = (in_rows and k.extra and k.causal and (long or k.num_heads > 64)) or (
            paged and not k.extra and not k.causal and long and k.num_heads <= 64
        )
        queries_as_rows(k, s, stored, decode_by_queries, False, (2, 1), narrow)
