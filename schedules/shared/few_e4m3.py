"""Dense MLA decode of 1 to 32 query rows on Hopper with products of e4m3, keys as their rows.

| producer, tile i                    | math, one warpgroup, tile i                         |
|-------------------------------------|-----------------------------------------------------|
| Q, with the first tile              | S^T = K(i) Q^T, 64 keys x query rows                |
| fetch K(i), when its place is free  | V(i)^T to registers; give the place of tile i back  |
| look up where a later tile lies     | maxima of all warps; P -> SMEM; O *= alpha          |
|                                     | O^T += V(i)^T P^T                                   |

No loop has code of its own for the first or the last tile, as in `schedules/shared/few_rows.py`.
"""

from mlagen.attention.latent.problem import LatentProblem, item_rows
from mlagen.dsl import epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def few_e4m3(k, s, operations):
    """The schedule of `operations(k, s, producer, math, held, ahead)`."""
    columns = -(-k.d_qk // 128)
    s.choice("persistent", 0, comment="a block takes one work item")
    slots = s.choice("slots", 3, 4, comment="tiles of keys in SMEM")
    ahead = s.choice("ahead", *((0, 1, 2) if k.page_size > 1 else (0,)),
                     comment="tile after the fetched one that is prefetched to L2")  # fmt: skip
    rows, single = -(-item_rows(k) // 8) * 8, k.page_size > 1
    held = s.choice("held", *((4, 2) if rows <= 24 else (2,)),
                    comment="tiles of columns of V that are read before P is known")  # fmt: skip
    math = s.role("math", warpgroups=1, registers=256)
    producer = s.role("producer", warps=1 if single else 4, single=single)

    # SMEM: Q, a ring of tiles of 64 keys, the last columns of which are half full, P, and what
    # warps exchange.
    for tensor, name, height, count in (("q", "Q", rows, 1), ("cache", "K", 64, slots)):
        for n in range(columns):
            s.smem.tile(f"{name}{n}", tensor, rows=height, row_bytes=128, slots=count)
    s.smem.room("P", 64 * rows, align=8 * 64)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")
    s.named("v", ".b32", k.d_v // 8, "V^T as operand A: d_v x a tile")
    d = operations(k, s, producer, math, held, ahead)
    first, *others = d.values

    with prologue(math):
        d.find(math)
        d.clear()
    for i in tiles(math):
        d.qk(i)
        d.load_values(i, first)
        d.give_back(i, when=not others)
        d.softmax(i)
        for part in others:  # in registers of scores that have become P
            d.load_values(i, part)
        d.give_back(i, when=bool(others))
        d.rescale(i)
        for part in d.values:
            d.pv_of(i, part)
    with epilogue(math):
        d.store_sum()
        d.finish()

    with prologue(producer):
        d.find(producer)
    for i in tiles(producer):
        d.load_queries(i)
        d.fetch_tile(i)
        d.prefetch(i)
        d.look_up(i)
