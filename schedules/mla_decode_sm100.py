"""MLA decode on Blackwell in the absorbed form 576 / 512. A block has up to 64 query rows of one
sequence (heads, or heads of several new tokens) and all of its keys or one split of them. More
query rows that share keys are a CTA pair's work, so that keys are read once for all of them; with
`ctas=1` they are of several blocks.

The table is `schedules/tables/tensor_memory.py`. The default's, of a bf16 cache:

| feeder, tile i             | math, tile i             | softmax, tile i                  |
|----------------------------|--------------------------|----------------------------------|
| rows of tile i; the pages  | S(i) = Q K(i)^T          | S(i) from TMEM; give S back      |
| of tile i+1                | O += P(i-1) V(i-1)       | mask, maxima, P(i) in registers  |
| K(i) to SMEM by TMA        | give P and K of i-1 back | O *= alpha in TMEM; P(i) to SMEM |

| memory    | what lies there                                                                   |
|-----------|-----------------------------------------------------------------------------------|
| SMEM      | 230496 of 232448 bytes: Q 64 x 576; K 64 x 576, two slots; P 64 x 64: tiles of 64 |
|           | columns, 128 bytes wide                                                           |
| TMEM      | 512 of 512 columns: O 256; S 32; of Q seven tiles of 32, copied once              |
| registers | a thread: the launch's share for all roles; of softmax S 32, P 16, O 32 at once   |

One thread multiplies, one warp feeds; rows of e4m3 are converted by two warpgroups, of a pair one
for K and one for V. With `persistent` a block takes one item after another.
"""

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import OF_E4M3, SELDOM_MOVED
from mlagen.attention.latent.sm_100a.dequantized import Dequantized
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_decode.costs import on_b200
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.paged import Boxes, Paged
from mlagen.schedules.tables.tensor_memory import Budget, tensor_memory


def facts(order):
    def of(k, knobs):
        items = "several" if knobs["persistent"] else "one"
        ctas = knobs["ctas"]
        return Facts(order, ctas * BLOCK_ROWS, ctas, items=items, costs=on_b200(k, ctas))

    return of


def ptxas_13_0(k, ctas, several):
    """What ptxas 13.0 needs so that nothing of a kernel which converts is kept in memory: fewer
    columns of O at once where blocks have several items, or a pair's rows have scales; for the
    feeder more where a block has several items, queries with scales, and pages of several tiles."""
    if not k.dequantized:
        return Budget()
    if ctas == 2:
        return Budget(160, 112, 16 if several or k.rope_aware else 32)
    looks_up = several and k.rope_aware_queries and k.page_size > 64
    return Budget(*((176, 104) if looks_up else (192, 96)), 16 if several else 32)


def form(name, use, storage, order, serves):
    return Variant(name, use, table=lambda k, s: tensor_memory(k, s, Paged, storage, ptxas_13_0),
                   facts=facts(order), serves=serves)  # fmt: skip


VARIANTS = (
    form("bf16", "bf16 rows, by TMA", Boxes, SELDOM_MOVED, lambda k: k.cache_dtype == "bf16"),
    form("qkv_fp8", "products of e4m3, rows by TMA", Boxes, OF_E4M3, lambda k: k.compute == "fp8"),
    form("kv_fp8", "e4m3 and rope-aware rows, which feeders convert to bf16", Dequantized,
         SELDOM_MOVED, lambda k: k.dequantized),
)  # fmt: skip


@schedule(problem=MlaDecodeConfig, target="sm_100a", variants=VARIANTS)
def mla_decode_sm100(k, s, variant):
    variant.table(k, s)
