"""Dense MLA decode of 1 to 32 query rows on Hopper, swap-AB: keys are the rows of products. Two
tables over pages, which a producer fetches as their places become free.

`swap_ab`: one warpgroup has scores and output. One more makes bf16 of e4m3, where products are not.

| math, tile i                                                                      |
|-----------------------------------------------------------------------------------|
| S^T = K(i) Q^T, 64 keys x rows; e4m3: V(i)^T to registers, give K(i) back         |
| maxima of all warps; P -> SMEM; O *= alpha; O^T += V(i)^T P^T                     |

`swap_ab_split_roles`: over rows of e4m3, in f16; each of two warpgroups dequantizes its own operand
in registers, and the scores of tile i + 1 are computed while O takes in tile i.

| scores, tile i                           | math, tile i                           |
|------------------------------------------|----------------------------------------|
| some columns of K(i) to registers        | some columns of V(i)^T to registers    |
| S^T += K Q^T; more columns               | O *= alpha; O^T += V^T P^T             |
| maxima; P and alpha -> SMEM              | more columns; say that P is read       |
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a import swap_ab as parts
from mlagen.dsl import epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab(k, s, paged):
    """`paged`: the part that knows where rows lie, a class."""
    fp8, width = k.compute == "fp8", 128 // k.product_bytes  # columns of a tile
    columns, rows, dequantizes = -(-k.d_qk // width), parts.rows_in_eights(k), k.dequantized
    ways = (columns,) if fp8 else (2,) if dequantizes else (9, 3)
    boxes = s.choice("boxes", *ways, comment="tiles of columns that share a barrier")
    slots = s.choice("slots", *((3, 4) if fp8 else (2,)), comment="tiles of keys in SMEM")
    # Three warpgroups begin with 168 registers a thread.
    math = s.role("math", warpgroups=1, registers=232 if dequantizes else 256)
    dequant = s.role("feeder", warpgroups=1, registers=96) if dequantizes else None
    producer = paged.role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, of e4m3 the last ones half full; what warps exchange.
    s.smem.tile_row("Q", columns, "q", rows=rows)
    s.smem.tile_row("K", columns, "cache", rows=64, slots=slots)
    s.smem.tile_row("R", -(-k.d_qk // 128) if dequantizes else 0, "cache", rows=64)
    s.smem.room("P", 64 * k.product_bytes * rows, align=8 * 64 * k.product_bytes)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")
    if fp8:
        s.named("v", ".b32", k.d_v // 8, "V^T as operand A: d_v x a tile")

    kernel = parts.SwapAbKernel(k, s, rows, math, math)
    pages = paged(kernel, producer)
    queries = parts.SwapAbQueries(kernel, producer, width)
    if dequantizes:
        storage = parts.DequantizedKeys(kernel, pages, dequant, boxes)
    else:
        storage = parts.StoredKeys(kernel, pages, width, boxes)
    products = (parts.E4m3 if fp8 else parts.Bf16)(kernel, queries, storage.keys)
    softmax = parts.SwapAbSoftmax(kernel, products.weights, "swap_ab/rows/paged/softmax")
    output = parts.SwapAbOutput(kernel, "output/swap_ab", storage.keys.tiles)
    s.plain = parts.swap_ab_order(producer, queries, storage, products)

    for role in s.roles:
        with prologue(role):
            pages.find(role)
            if role is math:
                softmax.clear()
    for i in tiles(math):
        queries.read(i)
        products.qk(i)
        products.read_values(i, products.early)  # to registers
        storage.keys.release(i, when=products.frees == "early")
        softmax.exponent(i)
        storage.zero_tail(i)
        products.read_values(i, products.late)  # to those of scores that have become P
        storage.keys.release(i, when=products.frees == "late")
        softmax.rescale(i)
        products.pv(i)
        storage.keys.release(i, when=products.frees == "last")
    with epilogue(math):
        softmax.store_sum()
        output.store()

    for i in tiles(producer):
        queries.load(i)
        storage.fill(i)
        pages.prefetch(i)
        pages.look_up(i)

    if dequantizes:
        for i in tiles(dequant):
            storage.convert(i)


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab_split_roles(k, s, paged):
    """`paged`: the part that knows where rows lie, a class."""
    columns, rows = -(-k.d_qk // 128), parts.rows_in_eights(k)
    slots = s.choice("slots", 3, 2, comment="tiles of keys in SMEM")
    width = s.choice("width", *((128, 64) if rows <= 16 else (64,)),
                     comment="columns that are converted at a time")  # fmt: skip
    scores = s.role("scores", warpgroups=1, registers=120)
    math = s.role("math", warpgroups=1, registers=216)
    producer = paged.role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, the last columns half full, P, and what warps exchange.
    s.smem.tile_row("Q", k.d_qk // 64, "q", rows=rows)
    ordered = not parts.converts_queries(k)  # Q once more, in the order of the keys' columns
    s.smem.tile_row("S", k.d_qk // 64 if ordered else 0, "ordered", rows=rows)
    s.smem.tile_row("K", columns, "cache", rows=64, slots=slots)
    s.smem.room("P", 128 * rows, align=8 * 128)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")
    s.named("a", ".b32", width // 2, "operands A of some columns of a tile, in turn")

    kernel = parts.SwapAbKernel(k, s, rows, math, scores)
    pages = paged(kernel, producer)
    loaded = parts.SwapAbQueries(kernel, producer, ordered=parts.ordered_tiles(k))
    storage = parts.StoredKeys(kernel, pages, 128, columns)
    queries = parts.OrderedQueries(kernel, loaded)
    handed = parts.Handed(kernel, factors=ordered)
    scales = parts.KeyScales(kernel)
    products = parts.FromRegisters(kernel, queries, storage.keys, width)
    softmax = parts.SwapAbSoftmax(kernel, parts.weights(k), "swap_ab/split_roles/softmax",
                                  row_factors=queries.row_factors, alpha=handed.alpha)  # fmt: skip
    to, sums = "output/swap_ab_split_roles", handed.sums.name
    output = parts.SwapAbOutput(kernel, to, storage.keys.tiles, sums=sums)
    s.plain = parts.split_roles_order(producer, queries, scales, storage, products)

    for role in s.roles:
        with prologue(role):
            pages.find(role)
            if role is not producer:
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

    for i in tiles(producer):
        loaded.load(i)
        storage.fill(i)
        pages.prefetch(i)
        pages.look_up(i)
