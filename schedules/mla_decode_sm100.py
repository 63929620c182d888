"""MLA decode on Blackwell in the absorbed form 576 / 512. A block has up to 64 query rows of one
sequence (heads, or heads of several new tokens) and all of its keys or one split of them.

| feeder, tile i             | math, tile i             | softmax, tile i                  |
|----------------------------|--------------------------|----------------------------------|
| rows of tile i; the pages  | S(i) = Q K(i)^T          | S(i) from TMEM; give S back      |
| of tile i+1                | O += P(i-1) V(i-1)       | mask, maxima, P(i) in registers  |
| K(i) to SMEM by TMA        | give P and K of i-1 back | O *= alpha in TMEM; P(i) to SMEM |

While the softmax of a tile is computed, the next one's scores are multiplied, and the one after it
is on its way. V are the first 512 columns of K, the same bytes. Before the first tile math copies
most of Q to TMEM, so that products need not read it from SMEM again for every tile. One thread
multiplies, one warp feeds; no wait is placed by hand. Rows of e4m3 are converted by two warpgroups,
which load a tile to registers before they store the one before it.

With `persistent` a block takes one item after another, and each role goes on by itself: the feeder
fetches the next item's first keys as slots become free, and its Q when the last scores are there,
while the softmax still stores O.

More than 64 query rows that share keys are a CTA pair's work, whose schedule is
`schedules/shared/pages_on_a_cta_pair.py`; with `ctas=1` they are of several blocks.
"""

from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.fed import FedDecode
from mlagen.families.mla_decode.sm_100a.form import as_stored, converted, on_a_pair
from mlagen.families.mla_decode.sm_100a.operations import Decode
from mlagen.schedules.shared.feeders import convert, fetch, items_of_blocks, query_pipeline
from mlagen.schedules.shared.pages_on_a_cta_pair import pages_on_a_cta_pair
from mlagen.targets.nvidia.dsl import acquire, release


@schedule(problem=MlaDecodeConfig, target="sm_100a")
def mla_decode_sm100(k, s):
    ctas = s.choice("ctas", *((2, 1) if on_a_pair(k) else (1,)),
                    comment="2: a CTA pair multiplies together, 64 query rows in each")  # fmt: skip
    operations = FedDecode if converted(k) else Decode
    if ctas == 2:
        pages_on_a_cta_pair(k, s, operations)
        return
    items_of_blocks(s)
    # With scales of Q, several items and pages of several tiles ptxas spills with 192 and 96.
    most, few = (
        (176, 104) if s.persistent and k.rope_aware_queries and k.page_size > 64 else (192, 96)
    )
    fed = {"warpgroups": 2, "registers": few} if operations.converts else {"warps": 1}
    softmax = s.role("softmax", warpgroups=1, registers=most if operations.converts else 0)
    feeder = s.role("feeder", **fed)
    math = s.role("math", warps=1, single=True)

    # SMEM: rows of 128 bytes in the 128-byte swizzle. K and V are the same bytes. What is left of a
    # row of e4m3 is half of a tile's width, and so are its weights.
    columns, ring = -(-k.d_qk * k.product_bytes // 128), 4 // k.product_bytes
    Q, K, P = (
        [s.smem.tile(f"{name}{n}", tensor, rows=64, row_bytes=128, slots=slots) for n in range(of)]
        for name, tensor, of, slots in (
            ("Q", "q", columns, 1), ("K", "cache", columns, ring), ("P", "softmax", 1, 1)
        )
    )  # fmt: skip
    query_pipeline(s, Q, feeder, softmax, math, by_tma=as_stored(k))
    keys = s.smem.pipeline(
        "keys", *K, producer=feeder.name, consumer=math.name, releases=1,
        producer_threads=feeder.threads if operations.converts else 0,
        by_warps="fenced" if operations.converts else False,
    )  # fmt: skip
    weights = s.smem.pipeline(
        "weights", *P, producer=softmax.name, consumer=math.name, releases=1,
        producer_threads=softmax.threads, by_warps="fenced",
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
    # With 32, ptxas keeps a few of the softmax's registers in memory where there are several items.
    narrow = operations.converts and s.persistent
    s.named("o", ".b32", 16 if narrow else 32, "columns of O that are rescaled or stored")
    d = operations(k, s, softmax, feeder, sums)

    with prologue(feeder):
        d.setup(feeder)
        d.load_queries(feeder)
    with each_item(feeder):
        d.begin(feeder)
    if operations.converts:
        convert(d, feeder, keys)
    else:
        fetch(d, feeder, keys)

    with prologue(math):
        d.setup(math)
    with each_item(math):
        d.begin(math)
    for i in tiles(math):
        d.keep_queries(i)
        d.qk(i)
        d.release_queries(i)
        d.pv(i - 1)
        release(weights, i - 1)
        release(keys, i - 1)

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
