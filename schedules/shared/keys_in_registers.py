"""MLA of 1 to 16 heads over e4m3 rows on Hopper, keys as the rows of products and in registers: a
block has one query, or a split of its keys, and an SM has two blocks, which hide each other's
latency.

| one warpgroup, tile i                                                                        |
|----------------------------------------------------------------------------------------------|
| maxima of all warps; P(i) -> SMEM; O *= alpha                                                 |
| O^T += V(i)^T P(i)^T                                                                         |
| meanwhile first columns of tile i+1: numbers -> bf16, S^T = K(i+1) Q^T; then V(i) is free     |
| 64 columns after another: numbers -> bf16, S^T += K(i+1) Q^T, V(i+1) -> SMEM, load tile i+2   |
"""

from mlagen.attention.latent.sm_90a.keys_as_rows import query_rows
from mlagen.attention.latent.sm_90a.keys_in_registers import FRAGMENT, OWN_KEYS, KeysInRegisters
from mlagen.attention.latent.sm_90a.problem import LatentProblem
from mlagen.dsl import epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def keys_in_registers(k, s, stored, operations):
    """The schedule of `operations(k, s, math, kind)` for rows of the form `stored`."""
    math = s.role("math", warpgroups=1, registers=248)
    heads = query_rows(k)

    # SMEM, less than half of an SM's: values of 64 keys, Q, P, and what warps exchange.
    for n in range(k.d_v // 64):
        s.smem.tile(f"V{n}", "cache", rows=64, row_bytes=128, slots=1)
    for n in range(k.d_qk // 64):
        s.smem.tile(f"Q{n}", "q", rows=heads, row_bytes=128, slots=1)
    s.smem.room("P", 128 * heads)
    s.smem.room("of warps", 4 * 4 * heads)  # maxima, sums in the end: fp32 of each warp

    widen = s.choice("widen", "bits", "cvt", comment="how e4m3 becomes bf16")
    operands = s.choice("operands", 2, 1, comment="tiles of 64 columns that are operands at once")
    s.named("o", ".f32", k.d_v // 64 * heads // 2, "O^T: d_v x heads")
    s.named("s", ".f32", heads // 2, "S^T, then P^T: 64 keys x heads")
    s.named("raw", ".b32", OWN_KEYS * stored.words, "numbers of the next tile's rows")
    s.named("a", ".b32", operands * FRAGMENT, "operands A")
    d = operations(k, s, math, KeysInRegisters)

    with prologue(math):
        d.setup()
        d.clear()
        d.fetch_first()
    for i in tiles(math):
        d.softmax(i)
        d.rescale(i)
        d.pv_of(i)
        d.load_queries(i + 1)
        d.locate(i + 1)
        d.look_up(i + 1)
        for box in d.early:
            d.convert(i + 1, box, widen)
            d.qk_of(i + 1, box)
        d.free_values(i + 1)
        waiting = d.early[-operands:]  # until their registers are the operands of the next ones
        for box in d.early[:-operands]:
            d.hand_on(i + 1, box)
        for box in d.late:
            if waiting:
                d.hand_on(i + 1, waiting.pop(0))
            d.convert(i + 1, box, widen)
            d.hand_on(i + 1, box)
            d.qk_of(i + 1, box)
        d.fetch_scales(i + 1)
        d.look_ahead(i + 1)
    with epilogue(math):
        d.store_sum()
        d.finish()
