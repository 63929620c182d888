"""Top-k sparse MLA on Blackwell, over rows that each query's list names: decode and prefill.

A block has up to 64 heads of a query; with more heads two blocks are a CTA pair. In decode it has a
split of the keys: those of a first cache, then those of a second one. The table is
`schedules/tables/tensor_memory.py`. The default's, of bf16 rows:

| feeder, tile i            | math, tile i             | softmax, tile i                  |
|---------------------------|--------------------------|----------------------------------|
| rows of K(i) to SMEM      | S(i) = Q K(i)^T          | S(i) from TMEM; give S back      |
| by cp.async               | O += P(i-1) V(i-1)       | mask, maxima; list of tile i+1   |
| the list of tile i+1      | give P and K of i-1 back | O *= alpha in TMEM; P(i) to SMEM |

| memory    | what lies there                                                                   |
|-----------|-----------------------------------------------------------------------------------|
| SMEM      | 230496 of 232448 bytes: Q 64 x 576; K 64 x 576, two slots; P 64 x 64: tiles of 64 |
|           | columns, 128 bytes wide                                                           |
| TMEM      | 512 of 512 columns: O 256; S 32; of Q seven tiles of 32, copied once              |
| registers | a thread: the launch's share for all roles; of softmax S 32, P 16, O 32 at once   |

One thread multiplies, a warpgroup feeds; rows of e4m3 are converted by two, of a pair one for K and
one for V.
"""

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import OF_E4M3, SELDOM_MOVED
from mlagen.attention.latent.sm_100a.dequantized import Dequantized
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_100a.listed import Gathered, Listed
from mlagen.schedules.tables.tensor_memory import Budget, tensor_memory


def ptxas_13_0(k, ctas, several):
    """What ptxas 13.0 needs so that nothing of a kernel which converts is kept in memory: of a pair
    the softmax takes more with two lists, positions of one, and scales of 64 columns each."""
    if not k.dequantized:
        return Budget()
    scales = ctas == 2 and k.rows == "e4m3_block64" and k.extra and k.causal
    return Budget(176, 104) if scales else Budget(160, 112)


def form(name, use, storage, order, serves):
    return Variant(
        name, use, table=lambda k, s: tensor_memory(k, s, Listed, storage, ptxas_13_0),
        facts=lambda k, knobs: Facts(order, BLOCK_ROWS), serves=serves,
    )  # fmt: skip


VARIANTS = (
    form("bf16", "bf16 rows, by cp.async", Gathered, SELDOM_MOVED, lambda k: k.rows == "bf16"),
    form("qkv_fp8", "products of e4m3, rows by cp.async", Gathered, OF_E4M3,
         lambda k: k.compute == "fp8"),
    form("kv_fp8", "quantised rows of all formats, which feeders convert to bf16", Dequantized,
         SELDOM_MOVED, lambda k: k.dequantized),
)  # fmt: skip


@schedule(problem=MlaSparseDecodeConfig, target="sm_100a", variants=VARIANTS)
def mla_sparse_decode_sm100(k, s, variant):
    """Top-k sparse MLA decode on Blackwell, over rows that the list of each new token names."""
    variant.table(k, s)


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a", variants=VARIANTS)
def mla_sparse_prefill_sm100(k, s, variant):
    """Top-k sparse MLA prefill on Blackwell, over rows that each query's list names."""
    variant.table(k, s)
