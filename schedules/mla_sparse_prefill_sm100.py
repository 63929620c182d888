"""Top-k sparse MLA prefill on Blackwell, over rows that each query's list names.

A block has up to 64 heads of a query; with more heads two blocks are a CTA pair. The table is
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

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.mla_sparse_decode_sm100 import variants
from mlagen.schedules.tables.tensor_memory import Budget


def ptxas_13_0(k, ctas, several):
    """What ptxas 13.0 needs so that nothing of a kernel which converts is kept in memory."""
    return Budget(160, 112) if k.dequantized else Budget()


VARIANTS = variants(ptxas_13_0)


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a", variants=VARIANTS)
def mla_sparse_prefill_sm100(k, s, variant):
    variant.table(k, s)
