"""Top-k sparse MLA prefill on Blackwell, over rows that each query's list names.

A block has up to 64 heads of a query: the rows of its products, whose sums lie in tensor memory.

| feeder, tile i            | math, tile i             | softmax, tile i                  |
|---------------------------|--------------------------|----------------------------------|
| rows of K(i) to SMEM      | S(i) = Q K(i)^T          | S(i) from TMEM, mask, maxima     |
| load the list of tile i+1 | O += P(i-1) V(i-1)       | P(i) in registers                |
|                           | give P and K of i-1 back | O *= alpha in TMEM; P(i) to SMEM |

While the softmax of a tile is computed, the next one's scores are multiplied. With more heads two
blocks are a CTA pair: one thread multiplies for both. Either fetches half of the keys as K, and
half of the columns of all as V; what lands is handed on to the leader a tile later.
"""

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_100a.operations import SparsePrefill
from mlagen.targets.nvidia.dsl import acquire, release


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a")
def mla_sparse_prefill_sm100(k, s):
    ctas = s.choice("ctas", *((2, 1) if k.num_heads > 64 else (1,)),
                    comment="2: a CTA pair multiplies together, 64 heads in each")  # fmt: skip
    s.cta_cluster(ctas, pair=ctas == 2)
    softmax = s.role("softmax", warpgroups=1)
    feeder = s.role("feeder", warpgroups=1)
    math = s.role("math", warps=1, single=True, leader=ctas == 2)

    # SMEM: rows of 64 columns in the 128-byte swizzle. Without a pair K and V are the same bytes.
    def row(name, tensor, rows, slots, over=None):
        return s.smem.tile(name, tensor, rows=rows, row_bytes=128, slots=slots, over=over)

    def fed(name, tiles, **more):
        return s.smem.pipeline(name, *tiles, producer=feeder.name,
                               producer_threads=feeder.threads, **more)  # fmt: skip

    def landed(pipeline):
        tiles = [row(f"raw {t.name}", "cache", t.rows, t.slots, over=t) for t in pipeline.tiles]
        return fed(f"raw {pipeline.name}", tiles, consumer=feeder.name, within=pipeline)

    Q = [row(f"Q{n}", "q", 64, 1) for n in range(k.d_qk // 64)]
    K = [row(f"K{n}", "cache", 64 // ctas, 2) for n in range(k.d_qk // 64)]
    s.smem.pipeline("query", *Q, producer=feeder.name, consumer=math.name, resident=True)
    whose = {"consumer": math.name, "releases": 1, "by_warps": "fenced" if ctas == 2 else False}
    keys = values = fed("keys", K, **whose)
    if ctas == 2:
        V = [row(f"V{n}", "cache", 64, 2) for n in range(k.d_v // 128)]
        values = fed("values", V, **whose)
        raw_keys, raw_values = landed(keys), landed(values)
    weights = s.smem.pipeline(
        "weights", row("P", "softmax", 64, 1), producer=softmax.name, consumer=math.name,
        releases=1, producer_threads=softmax.threads, by_warps="fenced",
    )  # fmt: skip
    s.smem.room("of warps", 2 * 4 * softmax.threads)

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
    if ctas == 1:
        for i in tiles(feeder):
            d.find_rows(i)
            d.look_up(i + 1)
            copy(keys, i)
    else:
        for i in tiles(feeder):
            d.find_rows(i + 1)
            d.look_up(i + 2)
            acquire(keys, i + 1)
            copy(raw_keys, i + 1)
            copy(keys, i)
            acquire(values, i + 1)
            copy(raw_values, i + 1)
            copy(values, i)

    with prologue(math):
        d.setup(math)
    for i in tiles(math):
        d.qk(i)
        if ctas == 2:
            release(keys, i)
        d.pv(i - 1)
        release(weights, i - 1)
        release(values, i - 1)

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
