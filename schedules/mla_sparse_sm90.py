"""Top-k sparse MLA on Hopper, over rows that each query's list names: decode and prefill.

A block has a query's heads, or 64 of them. In decode it has a split of the keys: those of a first
cache, then those of a second one. In prefill over bf16 rows it takes one query after another. Up to
32 heads take swap-AB: keys are the rows of products, heads their columns. More take seesaw. The
tables are `schedules/tables/swap_ab_gathered.py`, `swap_ab_k_in_registers.py` and `seesaw.py`. The
last one's, of bf16 rows:

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
| registers | a thread: left 232, right 224, feeder 48; in prefill left 224, right 232;     |
|           | of left O 128, S 32, P 16, Q 16                                               |
"""

from functools import partial

from mlagen.attention.latent.order import (
    KEYS_AS_ROWS,
    KEYS_OF_GRAINS,
    SEESAW,
    SEESAW_OF_GRAINS,
)
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a import operations, serves
from mlagen.families.mla_sparse.sm_90a.serves import facts, in_order_of_registers
from mlagen.schedules.tables.seesaw import seesaw
from mlagen.schedules.tables.swap_ab_gathered import swap_ab_gathered
from mlagen.schedules.tables.swap_ab_k_in_registers import swap_ab_k_in_registers


def ptxas_13_0(k):
    """What ptxas 13.0 spills otherwise: with scales in the rows wider column blocks, or narrower
    ones; for CTA clusters whole tiles; for single blocks column blocks fetched two at a time. So
    whether these are `narrow`, and fetched `apart`."""
    stored = row_form(k)
    in_rows, paged, long = k.rows in ("v32", "model1"), k.rows == "model1", k.q_len > 2
    both = k.extra and k.causal
    if k.num_heads > 64:
        narrow = (both and (in_rows or k.rows == "rope_aware")) or (
            k.causal and stored and stored.fine
        )
    else:
        narrow = (in_rows and both and long) or (paged and long and not (k.extra or k.causal))
    return narrow, paged and not k.causal and (k.extra or long)


def seesaw_knobs(k, s, grained=False):
    """Seesaw's over listed rows. `grained`: numbers are f16 in multiples of a key's grain."""
    stored, persistent = row_form(k), not k.splits and not row_form(k)
    narrow, apart = ptxas_13_0(k)
    # ptxas spills numbers of f16 beside many tokens, unless two blocks share their conversion.
    clusters = (2,) if grained and k.q_len > 2 else (2, 1)
    blocks = s.choice("cluster", *clusters, comment="blocks that share the conversion of rows") if (
        stored and k.num_heads > 64
    ) else 1  # fmt: skip
    s.cta_cluster(blocks)
    shared = blocks > 1
    # Scales of fewer columns than a piece has leave no registers for pieces of two tiles, scales of
    # rows for one of the two places only; positions beside all scales of a row none for four.
    fine = narrow or (stored and stored.fine)
    if shared:
        listed = grained and k.causal and not k.extra and k.dtype == "bf16"
        widths = (2,) if narrow or listed else (4, 2)
    else:
        widths = (1,) if fine else (2,) if stored else (5, 4, 2)
    boxes = s.choice("boxes", *widths, comment="tiles of 64 columns that share a barrier")
    by_key = stored and stored.scales == "key"
    whens = ("early",) if by_key or (stored and (shared or grained)) else ("early", "late")
    refill = s.choice("left_refill", *whens,
                      comment="before the left one stores its P, or after it")  # fmt: skip
    registers = (224, 232, 48) if persistent else (232, 224, 48)
    knobs = SeesawKnobs(boxes, 1, refill, persistent=persistent, feeders=1, gathered=not stored,
                        grained=grained, together=1 if apart or by_key else 2)  # fmt: skip
    return knobs, (224, 208, 72) if stored else registers


def by_queries(k, s, grained=False):
    seesaw(k, s, partial(seesaw_knobs, grained=grained), operations.by_queries)


VARIANTS = (
    Variant("swap_ab_rs_sums", "1 to 16 heads over v32 rows, whose scales multiply sums: exact",
            table=partial(swap_ab_k_in_registers, sums=True),
            facts=facts(in_order_of_registers(sums=True), together=True), serves=serves.sums),
    Variant("swap_ab_rs", "1 to 16 heads over quantised rows, K from registers",
            table=swap_ab_k_in_registers,
            facts=facts(in_order_of_registers(sums=False), together=True),
            serves=serves.in_registers),
    Variant("swap_ab_grains", "17 to 32 heads over v32 rows, f16 in multiples of a key's grain",
            table=partial(swap_ab_gathered, grained=True),
            facts=facts(KEYS_OF_GRAINS, together=True), serves=serves.swap_ab_grains),
    Variant("swap_ab", "1 to 32 heads, K as bf16 from SMEM", table=swap_ab_gathered,
            facts=facts(KEYS_AS_ROWS, together=True), serves=serves.swap_ab),
    Variant("seesaw_grains", "any number of heads over v32 rows, f16 in multiples of a key's grain",
            table=partial(by_queries, grained=True), facts=facts(SEESAW_OF_GRAINS),
            serves=serves.seesaw_grains),
    Variant("seesaw", "any number of heads, rows as bf16", table=by_queries, facts=facts(SEESAW)),
)  # fmt: skip


@schedule(problem=MlaSparseDecodeConfig, target="sm_90a", variants=VARIANTS)
def mla_sparse_decode_sm90(k, s, variant):
    """Top-k sparse MLA decode on Hopper, over rows that the list of each new token names."""
    operations.check_products(k)
    variant.table(k, s)


@schedule(problem=MlaSparsePrefillConfig, target="sm_90a", variants=VARIANTS)
def mla_sparse_prefill_sm90(k, s, variant):
    """Top-k sparse MLA prefill on Hopper, over rows that each query's list names."""
    operations.check_products(k)
    variant.table(k, s)
