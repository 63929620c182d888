"""Dense MLA decode of 1 to 32 query rows on Hopper with products of e4m3, keys as their rows, and a
warpgroup for the scores.

| scores, one warpgroup, tile i            | math, one warpgroup, tile i            |
|------------------------------------------|----------------------------------------|
| S^T = K(i) Q^T                           | some columns of V(i)^T to registers    |
| give the place of tile i back            | O *= alpha; O^T += V^T P^T             |
| maxima; P and alpha -> SMEM              | more columns; give the place back      |

A producer fetches Q and tiles of keys. The scores of tile i + 1 are computed while O takes in tile
i. No loop has code of its own for the first or the last tile.
"""

from mlagen.attention.latent.problem import LatentProblem, item_rows
from mlagen.dsl import epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def few_e4m3_apart(k, s, operations):
    """The schedule of `operations(k, s, producer, scores, math, width, ahead)`."""
    columns = -(-k.d_qk // 128)
    s.choice("persistent", 0, comment="a block takes one work item")
    slots = s.choice("slots", 4, 3, comment="tiles of keys in SMEM")
    ahead = s.choice("ahead", *((0, 1, 2) if k.page_size > 1 else (0,)),
                     comment="tile after the fetched one that is prefetched to L2")  # fmt: skip
    rows, single = -(-item_rows(k) // 8) * 8, k.page_size > 1
    # Three warpgroups begin with 168 registers a thread.
    scores = s.role("scores", warpgroups=1, registers=120)
    math = s.role("math", warpgroups=1, registers=216)
    producer = s.role("producer", warps=1 if single else 4, single=single)

    # SMEM: Q, a ring of tiles of 64 keys, the last columns of which are half full, P, and what
    # warps exchange.
    for tensor, name, height, count in (("q", "Q", rows, 1), ("cache", "K", 64, slots)):
        for n in range(columns):
            s.smem.tile(f"{name}{n}", tensor, rows=height, row_bytes=128, slots=count)
    s.smem.room("P", 64 * rows)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")
    s.named("v", ".b32", 32, "V^T as operand A, 128 columns of a tile, in turn")
    d = operations(k, s, producer, scores, math, 128, ahead)

    with prologue(scores):
        d.find(scores)
        d.clear()
    for i in tiles(scores):
        d.qk(i)
        d.give_back(i)
        d.wait_read(i - 1)
        d.softmax(i)
    with epilogue(scores):
        d.store_sum()
        d.hand_sums()

    with prologue(math):
        d.find(math)
        d.clear()
    first, second, *others = d.value_pieces
    for i in tiles(math):
        d.read_values(i, first)
        d.read_values(i, second)
        d.rescale(i)
        d.pv_of(i, first)
        d.pv_of(i, second)
        for piece in others:
            d.read_values(i, piece)
            d.pv_of(i, piece)
        d.give_back(i)
        d.is_read(i)
    with epilogue(math):
        d.finish()

    with prologue(producer):
        d.find(producer)
    for i in tiles(producer):
        d.load_queries(i)
        d.fetch_tile(i)
        d.prefetch(i)
        d.look_up(i)
