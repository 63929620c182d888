"""MLA of 1 to 16 heads over e4m3 rows on Hopper, keys as the rows of products and in registers: a
block has one query, or a split of its keys, and an SM has two blocks, which hide each other's
latency.

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
from mlagen.attention.latent.sm_90a.keys_as_rows import query_rows
from mlagen.attention.latent.sm_90a.keys_in_registers import FRAGMENT, OWN_KEYS, KeysInRegisters
from mlagen.attention.latent.sm_90a.scaled_sums import ScaledSums, has_scaled_sums
from mlagen.attention.latent.sm_90a.whole_rows import BARRIERS, ROOM, LoadsToo, WholeRows
from mlagen.dsl import epilogue, prologue, schedule, tiles


def kind_of_sums(s, stored, heads, decode):
    """What computes and fetches, by two knobs, and the SMEM that it needs besides tiles."""
    able = has_scaled_sums(stored)
    scales = s.choice("scales", *(("sums", "numbers") if able else ("numbers",)),
                      comment="what scales of columns multiply")  # fmt: skip
    sums, ways = scales == "sums", ("either", "bulk", "loads") if decode else ("loads", "bulk")
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
    fetching = {"either": LoadsToo, "bulk": WholeRows, "loads": ScaledSums}
    return fetching[rows_by] if sums else KeysInRegisters


@schedule(problem=LatentProblem, target="sm_90a")
def keys_in_registers(k, s, stored, operations, decode):
    """The schedule of `operations(k, s, math, kind, ..)` for rows of the form `stored`; `decode`:
    whether a query's keys are split, so that a grid may have few blocks."""
    math = s.role("math", warpgroups=1, registers=248)
    heads = query_rows(k, stored)

    # SMEM, less than half of an SM's: values of 64 keys, Q, P, and what warps exchange.
    for n in range(k.d_v // 64):
        s.smem.tile(f"V{n}", "cache", rows=64, row_bytes=128, slots=1)
    for n in range(k.d_qk // 64):
        s.smem.tile(f"Q{n}", "q", rows=heads, row_bytes=128, slots=1)
    kind = kind_of_sums(s, stored, heads, decode)

    most = 4 if k.dtype == "bf16" else 2  # beside e4m3 queries ptxas needs more registers
    many = stored.held_scales > most  # scales, and few registers are left
    products = s.choice("products", *((1, 2) if many or kind.whole_rows else (2, 1)),
                        comment="parts of O that are products of their own")  # fmt: skip
    loads = kind.loads_too or not kind.whole_rows
    ways = ((1, 0) if decode else (0, 1)) if stored.rope and loads else (0,)
    rope_last = s.choice("rope_last", *ways,
                         comment="columns of bf16 are loaded after all others")  # fmt: skip
    s.named("o", ".f32", k.d_v // 64 * heads // 2, "O^T: d_v x heads")
    s.named("s", ".f32", heads // 2, "S^T, then P^T: 64 keys x heads")
    s.named("raw", ".b32", OWN_KEYS * stored.words, "numbers of the next tile's rows")
    s.named("a", ".b32", 2 * FRAGMENT, "operands A of 64 columns each, in turn")
    d = operations(k, s, math, kind, products=products)

    with prologue(math):
        d.setup()
        d.clear()
        d.fetch_first()
    first, second, *others = d.boxes
    arrived = others[len(others) // 2]  # by then the positions have
    for i in tiles(math):
        d.softmax(i)
        d.rescale(i)
        d.pv_of(i, 0)
        d.load_queries(i + 1)
        d.take_second(i + 1)
        d.locate(i + 1)
        d.look_up(i + 1)
        d.convert(i + 1, first)
        d.qk_of(i + 1, first)
        for part in range(1, products):
            d.pv_of(i, part)
        d.convert(i + 1, second)
        d.look_ahead(i + 1, when=not d.places_kept)
        d.free_values(i + 1, 0)
        d.store_values(i + 1, second)
        d.fetch_after(i + 1, second)
        d.qk_of(i + 1, second)
        d.store_values(i + 1, first)
        if not rope_last:
            d.fetch_after(i + 1, first)
        for box in others:
            for part in range(1, products):
                d.free_values(i + 1, part, before=box)
            d.convert(i + 1, box)
            d.add_group(i + 1, before=box)
            d.store_values(i + 1, box)
            d.fetch_after(i + 1, box)
            d.qk_of(i + 1, box)
            d.list_seen(i + 1, when=box == arrived)
        if rope_last:
            d.fetch_after(i + 1, first)
        d.take_first(i + 1)
        d.add_group(i + 1, before=None)
        d.fetch_scales(i + 1)
        d.look_ahead(i + 1, when=d.places_kept)
    with epilogue(math):
        d.store_sum()
        d.undo()
        d.finish()
