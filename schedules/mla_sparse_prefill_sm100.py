"""Top-k sparse MLA prefill on Blackwell, over rows that each query's list names.

A block has up to 64 heads of a query: the rows of its products, whose sums lie in tensor memory.

| feeder, tile i            | math, tile i             | softmax, tile i                  |
|---------------------------|--------------------------|----------------------------------|
| rows of K(i) to SMEM      | S(i) = Q K(i)^T          | S(i) from TMEM, mask, maxima     |
| load the list of tile i+1 | O += P(i-1) V(i-1)       | P(i) in registers                |
|                           | give P and K of i-1 back | O *= alpha in TMEM; P(i) to SMEM |

While the softmax of a tile is computed, the next one's scores are multiplied.
"""

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_100a.operations import SparsePrefill
from mlagen.targets.nvidia.dsl import acquire, release


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a")
def mla_sparse_prefill_sm100(k, s):
    softmax = s.role("softmax", warpgroups=1)
    feeder = s.role("feeder", warpgroups=1)
    math = s.role("math", warps=1, single=True)

    # SMEM: rows of 64 columns in the 128-byte swizzle. K and V are the same bytes.
    def row(name, tensor, slots):
        return s.smem.tile(name, tensor, rows=64, row_bytes=128, slots=slots)

    Q = [row(f"Q{n}", "q", 1) for n in range(k.d_qk // 64)]
    K = [row(f"K{n}", "cache", 2) for n in range(k.d_qk // 64)]
    P = row("P", "softmax", 1)
    s.smem.room("of warps", 2 * 4 * softmax.threads)
    s.smem.pipeline("query", *Q, producer=feeder.name, consumer=math.name, resident=True)
    keys = s.smem.pipeline(
        "keys", *K, producer=feeder.name, consumer=math.name, releases=1,
        producer_threads=feeder.threads,
    )  # fmt: skip
    weights = s.smem.pipeline(
        "weights", P, producer=softmax.name, consumer=math.name, releases=1,
        producer_threads=softmax.threads, by_warps="fenced",
    )  # fmt: skip

    # TMEM: 64 rows by half of the columns in 64 lanes, the other half in the others.
    S = s.columns("S", 32, slots=2)
    sums = s.region("O", k.d_v // 2, producer=math.name, consumer=softmax.name)
    s.smem.pipeline("scores", S, producer=math.name, consumer=softmax.name)

    s.named("s", ".b32", 32, "S, then P: a row, half of a tile")
    s.named("p", ".b32", 16, "P as bf16")
    s.named("o", ".b32", 32, "columns of O that are rescaled or stored")
    d = SparsePrefill(k, s, softmax, feeder, sums)

    with prologue(feeder):
        d.setup(feeder)
        d.load_queries()
    for i in tiles(feeder):
        d.find_rows(i)
        d.look_up(i + 1)
        copy(keys, i)

    with prologue(math):
        d.setup(math)
    for i in tiles(math):
        d.qk(i)
        d.pv(i - 1)
        release(weights, i - 1)
        release(keys, i - 1)

    with prologue(softmax):
        d.setup(softmax)
    for i in tiles(softmax):
        d.load_scores(i)
        d.row_maximum(i)
        d.load_list(i + 1)
        d.exponent(i)
        acquire(weights, i)
        d.rescale(i)
        copy(weights, i)
    with epilogue(softmax):
        d.finish()
