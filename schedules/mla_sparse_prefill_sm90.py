"""Top-k sparse MLA prefill on Hopper, over rows that each query's list names.

Up to 32 heads take swap-AB: keys are the rows of products, heads their columns. More take the
table `schedules/tables/seesaw.py`, with blocks that take one query after another where rows are
bf16. That of bf16 rows:

| left, tiles i and i + 1          | right, tiles i + 1 and i        | feeder, tiles i and i + 1  |
|----------------------------------|---------------------------------|----------------------------|
| softmax(i); O += P(i) V(i)       | softmax(i+1); P(i+1) to SMEM    | rows of i+2, i+3: cp.async |
| P(i) to SMEM; O += P(i+1) V(i+1) | O += P(i+1) V(i+1), P(i) V(i)   | as tiles of K become free  |
| give columns 0..255 of K back    | give columns 256..575 of K back | what lists say of i+4, i+5 |
| S(i+2) = Q K(i+2)                | S(i+3) = Q K(i+3)               |                            |

| memory    | what lies there                                                               |
|-----------|-------------------------------------------------------------------------------|
| SMEM      | 231424 of 232448 bytes: Q 64 x 576; K 64 x 576, two slots: tiles of 64        |
|           | columns, 128 bytes wide; P 64 x 64 each way, one over the end of Q; M, l      |
| registers | a thread: left 224, right 232, feeder 48; of left O 128, S 32, P 16, Q 16     |
"""

from functools import partial

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a.operations import (
    check_products,
    prefill_by_queries,
    row_form,
)
from mlagen.schedules.mla_sparse_decode_sm90 import seesaw_knobs, variants
from mlagen.schedules.tables.seesaw import seesaw


def by_queries(k, s, grained=False):
    knobs = partial(seesaw_knobs, persistent=not row_form(k), grained=grained)
    seesaw(k, s, knobs, prefill_by_queries)


VARIANTS = variants(False, by_queries)


@schedule(problem=MlaSparsePrefillConfig, target="sm_90a", variants=VARIANTS)
def mla_sparse_prefill_sm90(k, s, variant):
    check_products(k)
    variant.table(k, s)
