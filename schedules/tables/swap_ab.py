"""Dense MLA decode of 1 to 32 query rows on Hopper, swap-AB: keys are the rows of products. Two
tables over pages, which a producer fetches.

`swap_ab`: one warpgroup has scores and output.

| producer, tile i                    | math, one warpgroup, tile i                         |
|-------------------------------------|-----------------------------------------------------|
| Q, with the first tile              | Q that is e4m3; S^T = K(i) Q^T, 64 keys x rows      |
| fetch K(i), when its place is free  | e4m3: V(i)^T to registers; give K(i) back           |
| look up where a later tile lies     | maxima of all warps; P -> SMEM; O *= alpha          |
|                                     | O^T += V(i)^T P^T; bf16: give K(i) back             |

`products` are of bf16, or of e4m3. Tiles of an e4m3 cache whose products are of bf16 arrive in a
place of their own. One more warpgroup makes bf16 of them, 128 columns at a time, and gives their
place back when it has: not when it has only begun to read them.

`swap_ab_split_roles`: over rows of e4m3, in f16; each of two warpgroups dequantizes its own operand
in registers.

| scores, one warpgroup, tile i            | math, one warpgroup, tile i            |
|------------------------------------------|----------------------------------------|
| Q in the order of the keys' columns      | some columns of V(i)^T to registers    |
| some columns of K(i) to registers        | O *= alpha; O^T += V^T P^T             |
| S^T += K Q^T; more columns               | more columns                           |
| maxima; P and alpha -> SMEM              | say that P is read                     |

The scores of tile i + 1 are computed while O takes in tile i. The first tile of scores has code of
its own, as nobody has read P before it. Other loops are not peeled. For short sequences the
instruction cache is cold, and peeled iterations would only add lines to fetch.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.swap_ab.kernel import Kernel, rows_in_eights
from mlagen.attention.latent.sm_90a.swap_ab.order import split_roles_order, swap_ab_order
from mlagen.attention.latent.sm_90a.swap_ab.output import Output
from mlagen.attention.latent.sm_90a.swap_ab.products import Bf16, E4m3
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
from mlagen.attention.latent.sm_90a.swap_ab.storage import AsStored, Dequantized
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab(k, s, paged):
    """`paged`: the part that knows where rows lie, a class."""
    fp8, width = k.compute == "fp8", 128 // k.product_bytes  # columns of a tile
    columns, rows, dequantizes = -(-k.d_qk // width), rows_in_eights(k), k.dequantized
    boxes, held = columns, 0
    s.choice("persistent", 0, comment="a block takes one work item")
    if not fp8:
        boxes = s.choice("boxes", *((2,) if dequantizes else (9, 3)),
                         comment="tiles of 64 columns that share a barrier")  # fmt: skip
    slots = s.choice("slots", *((3, 4) if fp8 else (2,)), comment="tiles of keys in SMEM")
    ahead = tile_to_prefetch(k, s)
    if fp8:
        held = s.choice("held", *((4, 2) if rows <= 24 else (2,)),
                        comment="tiles of columns of V read before P is known")  # fmt: skip
    # Three warpgroups begin with 168 registers a thread.
    math = s.role("math", warpgroups=1, registers=232 if dequantizes else 256)
    dequant = s.role("feeder", warpgroups=1, registers=96) if dequantizes else None
    producer = fetching_role(k, s)

    # SMEM: Q, a ring of tiles of 64 keys, of e4m3 the last columns half full, P, and what warps
    # exchange.
    for tensor, name, height, count in (("q", "Q", rows, 1), ("cache", "K", 64, slots)):
        for n in range(columns):
            s.smem.tile(f"{name}{n}", tensor, rows=height, row_bytes=128, slots=count)
    for n in range(-(-k.d_qk // 128) if dequantizes else 0):
        s.smem.tile(f"R{n}", "cache", rows=64, row_bytes=128, slots=1)
    weights_and_sums(k, s, rows, p_bytes=64 * k.product_bytes)
    if fp8:
        s.named("v", ".b32", k.d_v // 8, "V^T as operand A: d_v x a tile")

    kernel = Kernel(k, s, rows, math, math)
    pages = paged(kernel, producer, ahead)
    queries = Queries(kernel, producer, width)
    if dequantizes:
        storage = Dequantized(kernel, pages, dequant, boxes)
    else:
        storage = AsStored(kernel, pages, width, boxes, cleans=not fp8)
    keys = storage.keys
    products = E4m3(kernel, queries, keys, held) if fp8 else Bf16(kernel, queries, keys)
    softmax = Softmax(kernel, products.weights, "swap_ab/rows/paged/softmax")
    output = Output(kernel, "output/swap_ab", keys.tiles)
    s.plain = swap_ab_order(producer, queries, storage, products)

    with prologue(math):
        pages.find(math)
        softmax.clear()
    for i in tiles(math):
        queries.read(i)
        products.qk(i)
        for part in products.early:  # columns of V that are read to registers
            products.read_values(i, part)
        keys.release(i, when=products.frees == "early")
        softmax.exponent(i)
        storage.zero_tail(i)
        for part in products.late:  # in registers of scores that have become P
            products.read_values(i, part)
        keys.release(i, when=products.frees == "late")
        softmax.rescale(i)
        products.pv(i)
        keys.release(i, when=products.frees == "last")
    with epilogue(math):
        softmax.store_sum()
        output.store()

    fetch(producer, pages, queries, storage)

    if dequantizes:
        with prologue(dequant):
            pages.find(dequant)
        for i in tiles(dequant):
            storage.convert(i)


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


def tile_to_prefetch(k, s):
    """The knob of a tile that is brought to L2 before it is fetched."""
    return s.choice("ahead", *((0, 1, 2) if k.page_size > 1 else (0,)),
                    comment="tile after the fetched one that is prefetched to L2")  # fmt: skip


def fetching_role(k, s):
    """One thread that fetches pages by TMA, or four warps where a page is one row."""
    single = k.page_size > 1
    return s.role("producer", warps=1 if single else 4, single=single)


def weights_and_sums(k, s, rows, p_bytes):
    """P, of `p_bytes` a query row, and what warps exchange; registers of scores and O."""
    s.smem.room("P", p_bytes * rows, align=8 * p_bytes)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")


def fetch(producer, pages, queries, storage):
    """The producer's part of the table."""
    with prologue(producer):
        pages.find(producer)
    for i in tiles(producer):
        queries.load(i)
        for pipeline in storage.arriving:
            copy(pipeline, i)
        pages.prefetch(i)
        pages.look_up(i)
