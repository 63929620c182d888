"""Top-k sparse MLA decode on Hopper for 1 to 32 heads: a block has a split of one query, two an SM.

| one warpgroup, tile i                                   |
|---------------------------------------------------------|
| S^T = K(i) Q^T, 64 keys x heads                         |
| maxima of all warps; P -> SMEM; O *= alpha              |
| O^T += V(i)^T P^T, 16 keys a step                       |
| after each step: fetch the next tile's keys there       |
"""

from mlagen.attention.latent.sm_90a.narrow import query_rows
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.sm_90a.operations import mla_sparse_decode_narrow, row_form


@schedule(problem=MlaSparseDecodeConfig, target="sm_90a")
def mla_sparse_decode_narrow_sm90(k, s):
    math = s.role("math", warpgroups=1, registers=248)
    rows = query_rows(k)

    # SMEM, half of an SM's: a tile of 64 keys in pieces, Q, P, and what warps exchange.
    stored = row_form(k)
    pieces = 2 if stored else 4
    for n in range(k.d_qk // 64):
        for piece in range(pieces):
            s.smem.tile(f"K{n}_{piece}", "cache", rows=64 // pieces, row_bytes=128, slots=1)
    for n in range(k.d_qk // 64):
        s.smem.tile(f"Q{n}", "q", rows=rows, row_bytes=128, slots=1)
    s.smem.room("P", 128 * rows)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x heads")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x heads")
    # Rows of e4m3 on their way: of all pieces, where registers allow.
    held = pieces if rows <= (8 if k.rows == "e4m3_block32" else 16) else 1
    if stored:
        s.named("raw", ".b32", held * stored.words, "numbers of the next tile's rows")
    d = mla_sparse_decode_narrow(k, s, math)

    with prologue(math):
        d.setup()
        d.clear()
    for i in tiles(math):
        d.qk(i)
        d.look_up(i)
        if stored:
            for piece in range(held):
                d.fetch(i + 1, piece)
        d.softmax(i)
        d.rescale(i)
        for piece in range(pieces):
            d.pv(i, piece)
        d.load_queries(i + 1)
        for piece in range(pieces):
            if stored and piece >= held:
                d.fetch(i + 1, piece)
            d.refill(i + 1, piece)
    with epilogue(math):
        d.store_sum()
        d.finish()
