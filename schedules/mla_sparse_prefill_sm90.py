"""Top-k sparse MLA prefill on Hopper, over rows that each query's list names.

Up to 32 heads take swap-AB: keys are the rows of products, heads their columns. More take the
table `seesaw`, with blocks that take one query after another.
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
