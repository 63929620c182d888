"""Top-k sparse MLA prefill on Hopper, over rows that each query's list names.

Up to 32 heads take swap-AB: keys are the rows of products, heads their columns. More take the
table `seesaw_listed`, with blocks that take one query after another.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a.operations import (
    check_products,
    prefill_by_queries,
    row_form,
)
from mlagen.schedules.mla_sparse_decode_sm90 import variants
from mlagen.schedules.tables.seesaw_listed import seesaw_listed


def seesaw(k, s, grained=False):
    stored = row_form(k)
    seesaw_listed(k, s, stored, prefill_by_queries, not stored, grained)


VARIANTS = variants(False, seesaw)


@schedule(problem=MlaSparsePrefillConfig, target="sm_90a", variants=VARIANTS)
def mla_sparse_prefill_sm90(k, s, variant):
    check_products(k)
    variant.table(k, s)
