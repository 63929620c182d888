"""Dense MLA decode of 1 to 32 query rows on Hopper with keys as the rows of its products.

| producer, tile i                    | math, one warpgroup, tile i                         |
|-------------------------------------|-----------------------------------------------------|
| Q, with the first tile              | Q that is e4m3; S^T = K(i) Q^T, 64 keys x rows      |
| fetch K(i), when its place is free  | maxima of all warps; P -> SMEM; O *= alpha          |
| look up where a later tile lies     | O^T += V(i)^T P^T                                   |
|                                     | give the place of tile i back                       |

Tiles of an e4m3 cache arrive in a place of their own. The feeder, one more warpgroup, makes bf16 of
them, 128 columns at a time, and gives their place back when it has: not when it has only begun to
read them.

No loop has code of its own for the first or the last tile: short calls run code that no cache
holds, and each of its lines is fetched once.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_rows import FewRows, rows_in_eights
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.shared.few import (
    fetch,
    fetching_role,
    tile_to_prefetch,
    weights_and_sums,
)


@schedule(problem=LatentProblem, target="sm_90a")
def few_rows(k, s, form):
    """`form(k, s)`: what is the family's own of the kernel."""
    s.choice("persistent", 0, comment="a block takes one work item")
    converted = k.cache_dtype != "bf16"
    boxes = s.choice("boxes", *((2,) if converted else (9, 3)),
                     comment="tiles of 64 columns that share a barrier")  # fmt: skip
    slots = s.choice("slots", 2, comment="tiles of keys in SMEM")
    ahead, rows = tile_to_prefetch(k, s), rows_in_eights(k)
    # Three warpgroups begin with 168 registers a thread.
    math = s.role("math", warpgroups=1, registers=232 if converted else 256)
    feeder = s.role("feeder", warpgroups=1, registers=96) if converted else None
    producer = fetching_role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, P, and what warps exchange.
    for tensor, name, height, count in (("q", "Q", rows, 1), ("cache", "K", 64, slots)):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=height, row_bytes=128, slots=count)
    for n in range(-(-k.d_qk // 128) if converted else 0):
        s.smem.tile(f"R{n}", "cache", rows=64, row_bytes=128, slots=1)
    weights_and_sums(k, s, rows, p_bytes=128)
    d = FewRows(k, s, producer, math, feeder, boxes, ahead, form(k, s))

    with prologue(math):
        d.find(math)
        d.clear()
    for i in tiles(math):
        d.read_queries(i)
        d.qk(i)
        d.softmax(i)
        d.zero_tail(i)
        d.rescale(i)
        d.pv_all(i)
        d.give_back(i)
    with epilogue(math):
        d.store_sum()
        d.finish()

    fetch(d, producer)

    if feeder:
        with prologue(feeder):
            d.find(feeder)
        for i in tiles(feeder):
            d.convert(i)
