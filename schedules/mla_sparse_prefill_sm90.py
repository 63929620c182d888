"""Top-k sparse MLA prefill on Hopper, over rows that each query's list names.

Up to 32 heads take swap-AB: keys are the rows of products, heads their columns. More take the
table `seesaw_listed`, with blocks that take one query after another.
"""

from mlagen.attention.latent.order import (
    KEYS_AS_ROWS,
    KEYS_OF_GRAINS,
    SEESAW,
    SEESAW_OF_GRAINS,
)
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a import serves
from mlagen.families.mla_sparse.sm_90a.operations import (
    check_products,
    prefill_by_queries,
    row_form,
)
from mlagen.families.mla_sparse.sm_90a.serves import facts, in_order_of_registers
from mlagen.schedules.tables.seesaw_listed import seesaw_listed
from mlagen.schedules.tables.swap_ab_gathered import swap_ab_gathered
from mlagen.schedules.tables.swap_ab_k_in_registers import swap_ab_k_in_registers


def seesaw(k, s, grained=False):
    stored = row_form(k)
    seesaw_listed(k, s, stored, prefill_by_queries, not stored, grained)


VARIANTS = (
    Variant(
        "swap_ab_rs_sums", "1 to 16 heads over v32 rows: scales multiply sums, nothing is rounded",
        table=lambda k, s: swap_ab_k_in_registers(k, s, False, sums=True),
        facts=facts(in_order_of_registers(sums=True), swap_ab=True), serves=serves.sums,
    ),
    Variant(
        "swap_ab_rs", "1 to 16 heads over quantised rows, K from registers",
        table=lambda k, s: swap_ab_k_in_registers(k, s, False),
        facts=facts(in_order_of_registers(sums=False), swap_ab=True), serves=serves.in_registers,
    ),
    Variant(
        "swap_ab_grains", "17 to 32 heads over v32 rows, f16 in multiples of a key's grain",
        table=lambda k, s: swap_ab_gathered(k, s, False, grained=True),
        facts=facts(KEYS_OF_GRAINS, swap_ab=True), serves=serves.swap_ab_grains,
    ),
    Variant(
        "swap_ab", "1 to 32 heads, K as bf16 from SMEM",
        table=lambda k, s: swap_ab_gathered(k, s, False),
        facts=facts(KEYS_AS_ROWS, swap_ab=True), serves=serves.swap_ab,
    ),
    Variant(
        "seesaw_grains", "any number of heads over v32 rows, f16 in multiples of a key's grain",
        table=lambda k, s: seesaw(k, s, grained=True),
        facts=facts(SEESAW_OF_GRAINS), serves=serves.seesaw_grains,
    ),
    Variant("seesaw", "any number of heads, rows as bf16", table=seesaw, facts=facts(SEESAW)),
)  # fmt: skip


@schedule(problem=MlaSparsePrefillConfig, target="sm_90a", variants=VARIANTS)
def mla_sparse_prefill_sm90(k, s, variant):
    check_products(k)
    variant.table(k, s)
