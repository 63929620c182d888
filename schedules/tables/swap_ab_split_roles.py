"""Dense MLA decode of 1 to 32 query rows over e4m3 rows on Hopper, swap-AB in f16: each warpgroup
dequantizes its own operand in registers.

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
from mlagen.attention.latent.sm_90a.swap_ab.kernel import Kernel, rows_in_eights
from mlagen.attention.latent.sm_90a.swap_ab.order import split_roles_order
from mlagen.attention.latent.sm_90a.swap_ab.output import Output
from mlagen.attention.latent.sm_90a.swap_ab.queries import Queries, converts_queries
from mlagen.attention.latent.sm_90a.swap_ab.softmax import Softmax
from mlagen.attention.latent.sm_90a.swap_ab.split_roles import (
    FromRegisters,
    Handed,
    KeyScales,
    OrderedQueries,
    ordered_tiles,
    weights,
)
from mlagen.attention.latent.sm_90a.swap_ab.storage import AsStored
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.tables.swap_ab_pages import (
    fetch,
    fetching_role,
    tile_to_prefetch,
    weights_and_sums,
)


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab_split_roles(k, s, paged):
    """`paged`: the part that knows where rows lie, a class."""
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

    kernel = Kernel(k, s, rows, math, scores)
    pages = paged(kernel, producer, ahead)
    loaded = Queries(kernel, producer, ordered=ordered_tiles(k))
    storage = AsStored(kernel, pages, 128, columns, cleans=False)
    queries = OrderedQueries(kernel, loaded)
    handed = Handed(kernel, factors=bool(ordered))
    scales = KeyScales(kernel)
    products = FromRegisters(kernel, queries, storage.keys, width)
    softmax = Softmax(kernel, weights(k), "swap_ab/split_roles/softmax",
                      row_factors=queries.row_factors, alpha=handed.alpha)  # fmt: skip
    output = Output(kernel, "output/swap_ab_split_roles", storage.keys.tiles, sums=handed.sums.name)
    s.plain = split_roles_order(producer, queries, scales, storage, products)

    with prologue(scores):
        pages.find(scores)
        softmax.clear()
    for i in tiles(scores):
        queries.spread(i)
        scales.next(i)
        for piece in products.pieces:
            products.read_keys(i, piece)
            products.qk(i, piece)
        products.qk_rope(i)
        storage.keys.release(i)
        handed.wait_read(i - 1)
        softmax.exponent(i)
    with epilogue(scores):
        softmax.store_sum()
        handed.hand_sums()

    with prologue(math):
        pages.find(math)
        softmax.clear()
    first, second, *others = products.value_pieces
    for i in tiles(math):
        products.read_values(i, first)
        products.read_values(i, second)
        softmax.rescale(i)
        products.pv(i, first)
        products.pv(i, second)
        for piece in others:
            products.read_values(i, piece)
            products.pv(i, piece)
        storage.keys.release(i)
        handed.is_read(i)
    with epilogue(math):
        output.store()

    fetch(producer, pages, loaded, storage)
