"""Dense MLA decode of 1 to 32 query rows over e4m3 rows on Hopper, keys as the rows of products
of f16: rows are converted in the registers of who multiplies them.

| scores, one warpgroup, tile i            | math, one warpgroup, tile i            |
|------------------------------------------|----------------------------------------|
| Q in the order of the keys' columns      | some columns of V(i)^T to registers    |
| some columns of K(i) to registers        | O *= alpha; O^T += V^T P^T             |
| S^T += K Q^T; more columns               | more columns                           |
| maxima; P and alpha -> SMEM              | say that P is read                     |

A producer fetches Q and tiles of keys. The scores of tile i + 1 are computed while O takes in tile
i. The first tile of scores has code of its own, as nobody has read P before it.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_rows import converts_queries, rows_in_eights
from mlagen.attention.latent.sm_90a.few_widened import FewWidened
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.shared.few import (
    fetch,
    fetching_role,
    tile_to_prefetch,
    weights_and_sums,
)


@schedule(problem=LatentProblem, target="sm_90a")
def few_widened(k, s, form):
    """`form(k, s)`: what is the family's own of the kernel."""
    columns = -(-k.d_qk // 128)
    s.choice("persistent", 0, comment="a block takes one work item")
    slots = s.choice("slots", 3, 2, comment="tiles of keys in SMEM")
    ahead, rows = tile_to_prefetch(k, s), rows_in_eights(k)
    # Three warpgroups begin with 168 registers a thread.
    width = s.choice("width", *((128, 64) if rows <= 16 else (64,)),
                     comment="columns that are converted at a time")  # fmt: skip
    scores = s.role("scores", warpgroups=1, registers=120)
    math = s.role("math", warpgroups=1, registers=216)
    producer = fetching_role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, the last columns of which are half full, P, and what
    # warps exchange.
    ordered = () if converts_queries(k) else (("ordered", "S"),)  # Q in the keys' order
    for tensor, name in (("q", "Q"), *ordered):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=rows, row_bytes=128, slots=1)
    for n in range(columns):
        s.smem.tile(f"K{n}", "cache", rows=64, row_bytes=128, slots=slots)
    weights_and_sums(k, s, rows, p_bytes=128)
    s.named("a", ".b32", width // 2, "operands A of some columns of a tile, in turn")
    d = FewWidened(k, s, producer, scores, math, width, ahead, form(k, s))

    with prologue(scores):
        d.find(scores)
        d.clear()
    for i in tiles(scores):
        d.spread_queries(i)
        d.next_scales(i)
        for piece in d.pieces:
            d.read_keys(i, piece)
            d.qk_of(i, piece)
        d.qk_rope(i)
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

    fetch(d, producer)
