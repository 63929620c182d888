"""Top-k sparse MLA decode on Hopper, over rows that the list of each new token names.

A block has a token's heads, or 64 of them, and a split of its keys: those of a first cache, then
those of a second one. Up to 32 heads take the table `schedules/tables/swap_ab_gathered.py`, more
`schedules/shared/queries_as_rows.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.sm_90a.operations import (
    check_products,
    decode_by_queries,
    row_form,
)
from mlagen.schedules.shared.queries_as_rows import queries_as_rows
from mlagen.schedules.tables.swap_ab_gathered import swap_ab_gathered


@schedule(problem=MlaSparseDecodeConfig, target="sm_90a")
def mla_sparse_decode_sm90(k, s):
    check_products(k)
    # Two lists and positions: ptxas spills with scales of 32 heads' rows.
    tight = k.rows == "v32" and k.extra and k.causal and k.num_heads > 16
    few = s.choice("keys_as_rows", *((1, 0) if k.num_heads <= 32 and not tight else (0,)),
                   comment="keys are the rows of products, heads their columns")  # fmt: skip
    if few:
        swap_ab_gathered(k, s, True)
    else:
        stored = row_form(k)
        # What ptxas spills else: with scales in the rows wider pieces, or narrower ones; for CTA
        # clusters whole tiles; for single blocks pieces that are fetched two at a time.
        in_rows, paged, long = k.rows in ("v32", "model1"), k.rows == "model1", k.q_len > 2
        both = k.extra and k.causal
        if k.num_heads > 64:
            fine = stored and stored.block in (32, 64) and not paged
            narrow = (both and (in_rows or k.rows == "rope_aware")) or (k.causal and fine)
        else:
            narrow = (in_rows and both and long) or (
                paged and long and not (k.extra or k.causal)
            )  # fmt: skip
        apart = paged and not k.causal and (k.extra or long)
        queries_as_rows(k, s, stored, decode_by_queries, False, (2, 1), narrow, apart)
