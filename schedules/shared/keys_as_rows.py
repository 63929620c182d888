"""MLA of 1 to 32 heads on Hopper with keys as the rows of its products: a block has one query, or a
split of its keys, and an SM has two blocks, which hide each other's latency.

| one warpgroup, tile i                                        |
|--------------------------------------------------------------|
| S^T = K(i) Q^T, 64 keys x heads                              |
| load the list of tile i+1; of e4m3 rows, their numbers       |
| maxima of all warps; P -> SMEM; O *= alpha                   |
| O^T += V(i)^T P^T, 16 keys a step                            |
| after each step: fetch the keys of tile i+1 into their place |
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.grained import has_grains
from mlagen.attention.latent.sm_90a.grained_keys import GrainedKeys
from mlagen.attention.latent.sm_90a.keys_as_rows import KeysAsRows, query_rows
from mlagen.dsl import epilogue, prologue, schedule, tiles
from mlagen.schedules.tables.swap_ab_k_in_registers import swap_ab_k_in_registers


@schedule(problem=LatentProblem, target="sm_90a")
def keys_as_rows(k, s, stored, operations, decode):
    """The schedule of `operations(k, s, math, kind)` for rows of the form `stored`; None: bf16.
    `decode`: as keys in registers take it."""
    heads = query_rows(k, stored)
    if stored and heads <= 16:
        held = s.choice("keys_from", "registers", "smem",
                        comment="where scores take keys from")  # fmt: skip
        if held == "registers":
            swap_ab_k_in_registers(k, s, decode)
            return
    math = s.role("math", warpgroups=1, registers=248)

    # SMEM, half of an SM's: a tile of 64 keys in pieces, Q, P, and what warps exchange.
    pieces = 2 if stored else 4
    columns = k.d_qk // 64
    for tensor, name, count, rows in (
        ("cache", "K", columns * pieces, 64 // pieces), ("q", "Q", columns, heads)
    ):  # fmt: skip
        for n in range(count):
            s.smem.tile(f"{name}{n}", tensor, rows=rows, row_bytes=128, slots=1)
    s.smem.room("P", 128 * heads, align=8 * 128)
    s.smem.room("of warps", 4 * 4 * heads)  # maxima, sums in the end: fp32 of each warp

    # Beside 32 heads, or fewer that are padded to them, which four threads a row lift.
    scales = s.choice("scales", "grains", "numbers",
                      comment="numbers of f16 in multiples of a key's grain, or of bf16") if (
        has_grains(stored) and heads == 32
    ) else "numbers"  # fmt: skip
    if scales == "grains":
        for piece in range(pieces):
            s.smem.room(f"grains {piece}", 4 * 64 // pieces)
        if k.dtype == "bf16":
            s.smem.room("of queries", 4 * heads)  # c times what undoes a power of two

    s.named("o", ".f32", k.d_v // 64 * heads // 2, "O^T: d_v x heads")
    s.named("s", ".f32", heads // 2, "S^T, then P^T: 64 keys x heads")
    early, late = (), ()
    if stored:
        held = s.choice("held", *((1, 2) if heads <= 16 else (1,)),
                        comment="pieces whose rows are loaded early")  # fmt: skip
        early, late = range(held), range(held, pieces)
        s.named("raw", ".b32", held * stored.words, "numbers of the next tile's rows")
    d = operations(k, s, math, GrainedKeys if scales == "grains" else KeysAsRows)
    waits = k.dtype != "bf16"  # Q comes by way of registers: after the first rows were asked for

    with prologue(math):
        d.setup()
        d.clear()
    for i in tiles(math):
        d.qk(i)
        d.look_up(i)
        for piece in early:
            d.fetch(i + 1, piece)
        d.softmax(i)
        d.rescale(i)
        for piece in range(pieces):
            d.pv(i, piece)
        d.load_queries(i + 1, when=not waits)
        for piece in range(pieces):
            d.fetch(i + 1, piece, when=piece in late)
            d.measure(i + 1, piece)
            d.refill(i + 1, piece)
        d.load_queries(i + 1, when=waits)
    with epilogue(math):
        d.store_sum()
        d.finish()
