"""Sparse MLA of 1 to 32 heads on Hopper, swap-AB: keys are the rows of products. A block has one
query, or a split of its keys, and an SM has two blocks, which hide each other's latency.

| one warpgroup, tile i                                        |
|--------------------------------------------------------------|
| S^T = K(i) Q^T, 64 keys x heads                              |
| load the list of tile i+1; of e4m3 rows, their numbers       |
| maxima of all warps; P -> SMEM; O *= alpha                   |
| O^T += V(i)^T P^T, 16 keys a step                            |
| after each step: fetch the keys of tile i+1 into their place |
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a import swap_ab as parts
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.sm_90a.gathered import Dequantized, Gathered, Grained
from mlagen.families.mla_sparse.sm_90a.listed import SharedLists


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab_gathered(k, s, grained=False):
    """`grained`: numbers are f16 in multiples of a key's grain, beside 32 heads, some of them
    padding."""
    stored = row_form(k)
    heads = parts.query_rows(k, stored)
    math = s.role("math", warpgroups=1, registers=248)

    # SMEM, half of an SM's: a tile of 64 keys in groups, Q, P, and what warps exchange.
    groups = range(2 if stored else 4)
    columns = k.d_qk // 64
    s.smem.tile_row("K", columns * len(groups), "cache", rows=64 // len(groups))
    s.smem.tile_row("Q", columns, "q", rows=heads)
    s.smem.room("P", 128 * heads, align=8 * 128)
    s.smem.room("of warps", 4 * 4 * heads)  # maxima, sums in the end: fp32 of each warp

    if grained:
        for group in groups:
            s.smem.room(f"grains {group}", 4 * 64 // len(groups))
        if k.dtype == "bf16":
            s.smem.room("of queries", 4 * heads)  # c times what undoes a power of two

    s.named("o", ".f32", k.d_v // 64 * heads // 2, "O^T: d_v x heads")
    s.named("s", ".f32", heads // 2, "S^T, then P^T: 64 keys x heads")
    early, late = (), ()
    if stored:
        held = s.choice("held", *((1, 2) if heads <= 16 else (1,)),
                        comment="pieces whose rows are loaded early")  # fmt: skip
        early, late = groups[:held], groups[held:]
        s.named("raw", ".b32", held * stored.words, "numbers of the next tile's rows")

    kernel = parts.SwapAbKernel(k, s, heads, math, math)
    kind = Grained if grained else Dequantized if stored else Gathered
    queries = kind.queries(kernel)
    storage = kind(kernel, queries, stored)
    lists = SharedLists(kernel, len(groups), ahead=storage.looks_ahead,
                        boxes=None if grained else heads)  # fmt: skip
    products = parts.Grouped(kernel, queries, storage.groups)
    softmax = parts.SwapAbSoftmax(kernel, kind.weights, "swap_ab/rows/listed/softmax",
                                  grains=storage.grains)  # fmt: skip
    place = kernel.tiles("cache") if k.splits else ()
    output = parts.SwapAbOutput(kernel, "output/listed_swap_ab", place)
    s.plain = parts.gathered_order(storage, products)
    waits = k.dtype != "bf16"  # Q comes by way of registers: after the first rows were asked for

    with prologue(math):
        lists.setup()
        softmax.clear()
    for i in tiles(math):
        products.qk(i)
        lists.look_up(i)
        for group in early:
            storage.fetch(i + 1, group)
        softmax.exponent(i)
        softmax.rescale(i)
        for group in groups:
            products.pv(i, group)
        queries.load(i + 1, when=not waits)
        for group in groups:
            storage.fetch(i + 1, group, when=group in late)
            storage.measure(i + 1, group)
            storage.refill(i + 1, group)
        queries.load(i + 1, when=waits)
    with epilogue(math):
        softmax.store_sum()
        output.store()
