"""MLA decode on Blackwell by CTA pairs: 65 to 128 query rows are the rows of a pair's products, 64
in each block, so that keys are read once for all of them. One thread of the leader issues products
for both.

| feeder of either block, tile i | math of the leader, tile i | softmax of either, tile i        |
|--------------------------------|----------------------------|----------------------------------|
| rows of tile i; the pages      | S(i) = Q K(i)^T            | S(i) from TMEM; give S back      |
| of tile i+1                    | give K(i) back             | mask, maxima, P(i) in registers  |
| half of the keys of K(i)       | O += P(i-1) V(i-1)         | O *= alpha in TMEM; P(i) to SMEM |
| half of the columns of V(i)    | give P and V of i-1 back   |                                  |

TMA completes the leader's barrier, whichever block's rows arrive. Rows that are converted are
stored by threads, which tell the leader themselves: K and V have a feeder each, which loads a tile
to registers before it stores the one before it. Before the first tile math copies most of Q to
TMEM, in both blocks. With `persistent` a pair takes one item after another, as a block does.
"""

from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.form import as_stored
from mlagen.schedules.shared.feeders import convert, items_of_blocks, query_pipeline
from mlagen.targets.nvidia.dsl import acquire, release


@schedule(problem=MlaDecodeConfig, target="sm_100a")
def pages_on_a_cta_pair(k, s, operations):
    """The schedule of `operations(k, s, softmax, feeder, sums)`."""
    s.cta_cluster(2, pair=True)
    items_of_blocks(s)
    converts = operations.converts
    fed = {"warpgroups": 1, "registers": 112} if converts else {"warps": 1}
    softmax = s.role("softmax", warpgroups=1, registers=160 if converts else 0)
    feeder = s.role("feeder", **fed)
    filler = s.role("filler", **fed) if converts else feeder
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
    query_pipeline(s, Q, feeder, softmax, math, by_tma=as_stored(k))
    weights = s.smem.pipeline(
        "weights", *P, producer=softmax.name, consumer=math.name, releases=1,
        producer_threads=softmax.threads, by_warps="fenced",
    )  # fmt: skip
    keys, values = (
        s.smem.pipeline(name, *held, producer=role.name, consumer=math.name, releases=1,
                        producer_threads=role.threads if converts else 0,
                        by_warps="fenced" if converts else False)
        for name, held, role in (("keys", K, feeder), ("values", V, filler))
    )  # fmt: skip
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
    # With 32, ptxas keeps a few of the softmax's registers in memory where rows have scales, or are
    # converted by blocks of several items.
    narrow = k.rope_aware or (converts and s.persistent)
    s.named("o", ".b32", 16 if narrow else 32, "columns of O that are rescaled or stored")
    d = operations(k, s, softmax, feeder, sums)

    with prologue(feeder):
        d.setup(feeder)
        d.load_queries(feeder)
    with each_item(feeder):
        d.begin(feeder)
    if converts:
        with prologue(filler):
            d.setup(filler)
        with each_item(filler):
            d.begin(filler)
        convert(d, feeder, keys)
        convert(d, filler, values)
    else:
        for i in tiles(feeder):
            d.find_rows(i)
            d.look_up(i + 1)
            copy(keys, i)
            d.load_item_queries(feeder, i)
            copy(values, i)

    with prologue(math):
        d.setup(math)
    with each_item(math):
        d.begin(math)
    for i in tiles(math):
        d.keep_queries(i)
        d.qk(i)
        d.release_queries(i)
        release(keys, i)
        d.pv(i - 1)
        release(weights, i - 1)
        release(values, i - 1)

    with prologue(softmax):
        d.setup(softmax)
        d.load_queries(softmax)
    with each_item(softmax):
        d.begin(softmax)
    for i in tiles(softmax):
        d.load_item_queries(softmax, i)
        d.load_scores(i)
        release(scores, i)
        d.row_maximum(i)
        d.exponent(i)
        acquire(weights, i)
        d.rescale(i)
        copy(weights, i)
        d.load_scales(i + 1)
        d.look_up_scales(i + 2)
    with epilogue(softmax):
        d.finish()
