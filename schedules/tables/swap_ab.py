"""Dense MLA decode of 1 to 32 query rows on Hopper, swap-AB: keys are the rows of products.

| producer, tile i                    | math, one warpgroup, tile i                         |
|-------------------------------------|-----------------------------------------------------|
| Q, with the first tile              | Q that is e4m3; S^T = K(i) Q^T, 64 keys x rows      |
| fetch K(i), when its place is free  | e4m3: V(i)^T to registers; give K(i) back           |
| look up where a later tile lies     | maxima of all warps; P -> SMEM; O *= alpha          |
|                                     | O^T += V(i)^T P^T; bf16: give K(i) back             |

`products` are of bf16, or of e4m3. Tiles of an e4m3 cache whose products are of bf16 arrive in a
place of their own. One more warpgroup makes bf16 of them, 128 columns at a time, and gives their
place back when it has: not when it has only begun to read them.

The loops are not peeled. For short sequences the instruction cache is cold, and peeled iterations
would only add lines to fetch.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.swap_ab.kernel import Kernel, rows_in_eights
from mlagen.attention.latent.sm_90a.swap_ab.order import swap_ab_order
from mlagen.attention.latent.sm_90a.swap_ab.output import Output
from mlagen.attention.latent.sm_90a.swap_ab.products import Bf16, E4m3
from mlagen.attention.latent.sm_90a.swap_ab.queries import Queries
from mlagen.attention.latent.sm_90a.swap_ab.softmax import Softmax
from mlagen.attention.latent.sm_90a.swap_ab.storage import AsStored, Dequantized
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.tables.swap_ab_pages import (
    fetch,
    fetching_role,
    tile_to_prefetch,
    weights_and_sums,
)


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
