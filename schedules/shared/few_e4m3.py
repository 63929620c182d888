"""Dense MLA decode of 1 to 32 query rows on Hopper with products of e4m3, keys as their rows.

| producer, tile i                    | math, one warpgroup, tile i                         |
|-------------------------------------|-----------------------------------------------------|
| Q, with the first tile              | S^T = K(i) Q^T, 64 keys x query rows                |
| fetch K(i), when its place is free  | V(i)^T to registers; give the place of tile i back  |
| look up where a later tile lies     | maxima of all warps; P -> SMEM; O *= alpha          |
|                                     | O^T += V(i)^T P^T                                   |

No loop has code of its own for the first or the last tile, as in `schedules/shared/few_rows.py`.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_e4m3 import FewE4m3
from mlagen.attention.latent.sm_90a.few_rows import rows_in_eights
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.shared.few import (
    fetch,
    fetching_role,
    tile_to_prefetch,
    weights_and_sums,
)


@schedule(problem=LatentProblem, target="sm_90a")
def few_e4m3(k, s, form):
    """`form(k, s)`: what is the family's own of the kernel."""
    columns = -(-k.d_qk // 128)
    s.choice("persistent", 0, comment="a block takes one work item")
    slots = s.choice("slots", 3, 4, comment="tiles of keys in SMEM")
    ahead, rows = tile_to_prefetch(k, s), rows_in_eights(k)
    held = s.choice("held", *((4, 2) if rows <= 24 else (2,)),
                    comment="tiles of columns of V that are read before P is known")  # fmt: skip
    math = s.role("math", warpgroups=1, registers=256)
    producer = fetching_role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, the last columns of which are half full, P, and what
    # warps exchange.
    for tensor, name, height, count in (("q", "Q", rows, 1), ("cache", "K", 64, slots)):
        for n in range(columns):
            s.smem.tile(f"{name}{n}", tensor, rows=height, row_bytes=128, slots=count)
    weights_and_sums(k, s, rows, p_bytes=64)
    s.named("v", ".b32", k.d_v // 8, "V^T as operand A: d_v x a tile")
    d = FewE4m3(k, s, producer, math, held, ahead, form(k, s))
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

    fetch(d, producer)
