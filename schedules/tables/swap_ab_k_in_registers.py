"""Sparse MLA of 1 to 16 heads over quantised rows on Hopper, swap-AB with K in registers: a block
has one query, or a split of its keys, and an SM has two blocks, which hide each other's latency.

| one warpgroup, tile i                                                                         |
|-----------------------------------------------------------------------------------------------|
| maxima of all warps; P(i) -> SMEM; O *= alpha                                                 |
| O^T += V(i)^T P(i)^T, half of O^T                                                             |
| 64 columns of tile i+1: numbers -> bf16, S^T = K(i+1) Q^T                                     |
| O^T += V(i)^T P(i)^T, its other half                                                          |
| 64 columns after another, where V(i) is done with: numbers -> bf16, V(i+1) -> SMEM, load      |
| tile i+2, S^T += K(i+1) Q^T                                                                   |

Rows of 656 bytes become f16: their scales multiply sums of columns, and P. Where rows are fetched
whole they come to SMEM half a tile at a time: second keys are taken before the 64 columns of tile
i+1, first keys of tile i+2 after them.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a import swap_ab as parts
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.sm_90a.fetching import BARRIERS, FETCHING, ROOM
from mlagen.families.mla_sparse.sm_90a.listed import Listed


@schedule(problem=LatentProblem, target="sm_90a")
def swap_ab_k_in_registers(k, s, sums=False):
    """`sums`: scales multiply sums of columns and P, not numbers."""
    math = s.role("math", warpgroups=1, registers=248)
    stored = row_form(k)
    heads = parts.query_rows(k, stored)

    # SMEM, less than half of an SM's: values of 64 keys, Q, P, and what warps exchange.
    s.smem.tile_row("V", k.d_v // 64, "cache", rows=64)
    s.smem.tile_row("Q", k.d_qk // 64, "q", rows=heads)
    ways = ("either", "bulk", "loads") if k.splits else ("loads", "bulk")
    rows_by = s.choice("rows_by", *(ways if sums else ("loads",)), comment="what fetches rows")
    s.smem.room("P", 128 * heads * (stored.blocks if sums else 1), align=8 * 128)
    s.smem.room("of warps", 4 * 4 * heads)  # maxima, sums in the end: fp32 of each warp
    if sums:
        s.smem.room("of queries", 4 * heads)  # c times what undoes a power of two
        s.smem.room("of scales", 4 * 4 * stored.blocks)  # the largest power of two of each warp
        s.named("sums", ".f32", heads // 2, "S^T of columns that share a scale")
    if rows_by != "loads":
        s.smem.room("rows", ROOM)  # half of a tile's
        s.smem.room("arrivals of rows", BARRIERS)

    most = 4 if k.dtype == "bf16" else 2  # beside e4m3 queries ptxas needs more registers
    many = stored.held_scales > most  # scales, and few registers are left
    count = s.choice("products", *((1, 2) if many or rows_by != "loads" else (2, 1)),
                     comment="parts of O that are products of their own")  # fmt: skip
    ways = ((1, 0) if k.splits else (0, 1)) if stored.rope and rows_by != "bulk" else (0,)
    rope_last = s.choice("rope_last", *ways,
                         comment="columns of bf16 are loaded after all others")  # fmt: skip
    s.named("o", ".f32", k.d_v // 64 * heads // 2, "O^T: d_v x heads")
    s.named("s", ".f32", heads // 2, "S^T, then P^T: 64 keys x heads")
    s.named("raw", ".b32", parts.OWN_KEYS * stored.words, "numbers of the next tile's rows")
    s.named("a", ".b32", 2 * parts.FRAGMENT, "operands A of 64 columns each, in turn")

    kernel = parts.SwapAbKernel(k, s, heads, math, math)
    rows = Listed(kernel, sums=sums, bulk=rows_by == "either")
    scales = (parts.ScaledSums if sums else parts.ScaledNumbers)(kernel, stored)
    keys = parts.OwnKeys(kernel, stored, FETCHING[rows_by].halves)
    queries = parts.OwnQueries(kernel, scales.queries)
    products = parts.KInRegisters(kernel, keys, queries, scales, count)
    fetching = FETCHING[rows_by](kernel, keys, scales)
    softmax = parts.SwapAbSoftmax(kernel, scales.weights, "swap_ab/rows/listed/softmax")
    place = kernel.tiles("cache") if k.splits else ()
    output = parts.SwapAbOutput(kernel, "output/listed_swap_ab", place)
    # Where scales lie elsewhere than rows it takes places of rows to load them.
    late = stored.scales != "none" and stored.scales_at is None
    s.plain = parts.k_in_registers_order(rows, fetching, products)

    with prologue(math):
        rows.setup()
        softmax.clear()
        fetching.fetch_first()
    first, second, *others = keys.boxes
    arrived = others[len(others) // 2]  # by then the positions have
    for i in tiles(math):
        softmax.exponent(i)
        softmax.rescale(i)
        products.pv(i, 0)
        queries.load(i + 1)
        fetching.take_second(i + 1)
        fetching.locate(i + 1)
        rows.look_up(i + 1)
        products.convert(i + 1, first)
        products.qk(i + 1, first)
        for part in range(1, count):
            products.pv(i, part)
        products.convert(i + 1, second)
        rows.look_ahead(i + 1, when=not late)
        products.free_values(i + 1, 0)
        products.store_values(i + 1, second)
        fetching.fetch_after(i + 1, second)
        products.qk(i + 1, second)
        products.store_values(i + 1, first)
        if not rope_last:
            fetching.fetch_after(i + 1, first)
        for box in others:
            for part in range(1, count):
                products.free_values(i + 1, part, before=box)
            products.convert(i + 1, box)
            scales.add_group(i + 1, before=box)
            products.store_values(i + 1, box)
            fetching.fetch_after(i + 1, box)
            products.qk(i + 1, box)
            rows.list_seen(i + 1, when=box == arrived)
        if rope_last:
            fetching.fetch_after(i + 1, first)
        fetching.take_first(i + 1)
        scales.add_group(i + 1, before=None)
        fetching.fetch_scales(i + 1)
        rows.look_ahead(i + 1, when=late)
    with epilogue(math):
        softmax.store_sum()
        scales.undo()
        output.store()
