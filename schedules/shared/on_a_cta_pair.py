"""Attention to listed rows on Blackwell: 65 to 128 heads of a query are the rows of a CTA pair's
products, 64 in each block. One thread of the leader issues products for both.

| feeder of either block, tile i      | math of the leader, tile i | softmax of either, tile i    |
|-------------------------------------|----------------------------|------------------------------|
| half of the keys of K(i+1) to SMEM  | S(i) = Q K(i)^T            | S(i) from TMEM; give S back  |
| hand K(i) on to the leader          | give K(i) back             | mask, maxima, P(i)           |
| half of the columns of V(i+1)       | O += P(i-1) V(i-1)         | O *= alpha in TMEM           |
| hand V(i) on                        | give P and V of i-1 back   | P(i) to SMEM                 |

cp.async completes barriers of the own block: so rows land in `raw` pipelines, in the same place,
and the feeder hands them on to the leader when it has asked for those of the tile after. Rows that
are converted are stored by threads, which tell the leader themselves: K and V have a feeder each.
Before the first tile math copies most of Q to TMEM, in both blocks.
"""

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.shared.feeders import convert, fetch_for_pair, query_pipeline
from mlagen.targets.nvidia.dsl import acquire, release


def landing(s, name, whole):
    """The pipeline that rows land by, in the tiles of the one that they are handed on by."""
    tiles = (s.smem.tile(f"{name}{n}", "cache", rows=x.rows, row_bytes=128, slots=x.slots, over=x)
             for n, x in enumerate(whole.tiles))  # fmt: skip
    return s.smem.pipeline(
        f"raw {whole.name}", *tiles, producer=whole.producer, consumer=whole.producer,
        producer_threads=whole.producer_threads, within=whole,
    )  # fmt: skip


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a")
def on_a_cta_pair(k, s, operations):
    """The schedule of `operations(k, s, softmax, feeder, sums)`."""
    s.cta_cluster(2, pair=True)
    # Two lists, and positions of one: ptxas spills with these scales where the softmax has 160.
    tight = (
        operations.converts and k.rows == "e4m3_block64" and getattr(k, "extra", False) and k.causal
    )
    most, few = (176, 104) if tight else (160, 112) if operations.converts else (0, 0)
    softmax = s.role("softmax", warpgroups=1, registers=most)
    feeder = s.role("feeder", warpgroups=1, registers=few)
    filler = s.role("filler", warpgroups=1, registers=few) if operations.converts else feeder
    math = s.role("math", warps=1, single=True, leader=True)

    # SMEM: rows of 128 bytes in the 128-byte swizzle.
    columns, values = -(-k.d_qk * k.product_bytes // 128), k.d_v * k.product_bytes // 256
    ring = 4 // k.product_bytes
    Q, P, K, V = (
        [s.smem.tile(f"{name}{n}", of, rows=rows, row_bytes=128, slots=slots) for n in range(count)]
        for name, of, count, rows, slots in (
            ("Q", "q", columns, 64, 1), ("P", "softmax", 1, 64, 1),
            ("K", "cache", columns, 32, ring), ("V", "cache", values, 64, ring),
        )
    )  # fmt: skip
    query_pipeline(s, Q, feeder, softmax, math, by_tma=k.as_stored)
    weights = s.smem.pipeline(
        "weights", *P, producer=softmax.name, consumer=math.name, releases=1,
        producer_threads=softmax.threads, by_warps="fenced",
    )  # fmt: skip
    keys, values = (
        s.smem.pipeline(name, *held, producer=role.name, consumer=math.name, releases=1,
                        producer_threads=role.threads, by_warps="fenced")
        for name, held, role in (("keys", K, feeder), ("values", V, filler))
    )  # fmt: skip
    if not operations.converts:
        raw_keys, raw_values = landing(s, "raw K", keys), landing(s, "raw V", values)
    s.smem.room("of warps", 2 * 4 * softmax.threads)

    # TMEM: 64 rows by half of the columns in 64 lanes, the other half in the others.
    sums = s.region("O", k.d_v // 2, producer=math.name, consumer=softmax.name)
    S = s.columns("S", 32, slots=1)
    scores = s.smem.pipeline(
        "scores", S, producer=math.name, consumer=softmax.name, releases=len(softmax.warps)
    )  # fmt: skip
    # The rest has the last tiles of Q, as many as fit, 32 columns each.
    s.region("Q", 32 * min(columns, 7), producer=math.name, consumer=math.name)

    s.named("s", ".b32", 32, "S, then P: a row, half of a tile")
    s.named("p", ".b32", 8 * k.product_bytes, "P as it is stored")
    s.named("o", ".b32", 32, "columns of O that are rescaled or stored")
    d = operations(k, s, softmax, feeder, sums)

    with prologue(feeder):
        d.setup(feeder)
        d.load_queries(feeder)
    if operations.converts:
        with prologue(filler):
            d.setup(filler)
        convert(d, feeder, keys)
        convert(d, filler, values)
    else:
        fetch_for_pair(d, feeder, keys, values, raw_keys, raw_values)

    with prologue(math):
        d.setup(math)
    for i in tiles(math):
        d.keep_queries(i)
        d.qk(i)
        release(keys, i)
        d.pv(i - 1)
        release(weights, i - 1)
        release(values, i - 1)

    with prologue(softmax):
        d.setup(softmax)
        d.load_queries(softmax)
    for i in tiles(softmax):
        d.load_scores(i)
        release(scores, i)
        d.row_maximum(i)
        d.load_list(i + 1)
        d.exponent(i)
        acquire(weights, i)
        d.rescale(i)
        copy(weights, i)
        d.load_scales(i + 1)
    with epilogue(softmax):
        d.finish()
