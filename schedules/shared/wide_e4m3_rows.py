"""MLA decode on gfx950 with products of e4m3 and 32 query rows a wave, 128 a workgroup.

A wave has a SIMD to itself. Nothing is converted but P, so bands are accumulation registers, which
leaves room for the scores of two tiles: the softmax of a tile ends under the scores of the next
one, whose maximum is found under the products of the former with V.

| cluster | matrix   | vector / transcendental | memory                                            |
|---------|----------|-------------------------|---------------------------------------------------|
| tile    |          |                         | first reads of K(i + 1) and V(i); pages           |
|         | QK(i+1)  | exp2, sum, P(i)         | rest of K(i + 1); DMA of i + ahead                |
|         |          | mask(i + 1)             |                                                   |
|         | PV(i)    | maximum(i + 1)          | rest of V(i)                                      |
|         |          | rescale O, seldom       |                                                   |

Barriers, pages and waits are those of `shared/wide_decode.py`.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.e4m3_products import WideE4m3Decode
from mlagen.families.mla_decode.gfx950.stored import KEYS, SPAN, Stored
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def wide_e4m3_rows(k, s):
    stored = Stored.of(k, s, ROWS_32)
    slots = s.choice("slots", 4, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", 16, 8, comment="8 bytes each of K, and of V, in registers")
    form, ahead = work_form_of(k, s), slots - 1

    # LDS: 64 bytes of all keys after another. Bits 6..9 are a key's number in 16.
    area = Subtiled(KEYS, SPAN, 32, SPAN, Xor((8, 9), (4, 5)))
    fragments = [stored.key_fragments()] * stored.spans
    reads = Reads(fragments, stored.key_read, "keys x columns, by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * stored.spans, reads=reads)

    # Of 256 vector registers a lane, 4 temporaries, these, 24 or so of row state and addresses; and
    # accumulation registers: the rest of O, Q, the bands.
    entry = form.entry(s)
    s.registers.tile(
        "S", stored.score_registers, "scores S^T = K Q^T, then P at its start", slots=2
    )
    s.registers.tile("O", 160, "output accumulator O^T, its first 320 columns")
    s.registers.tile("OA", 96, "its last 192 columns", file="a")
    s.registers.tile("Q", stored.query_registers, "queries", file="a")
    what = f"{band} times 8 bytes on their way to their products"
    s.registers.tile("KB", 2 * band, f"K: {what}", file="a")
    s.registers.tile("VB", 2 * band, f"V: {what}", file="a")

    decode = WideE4m3Decode(k, s, entry, KV, stored, form)
    waves = roles(all=range(WAVES))

    with prologue():
        decode.setup()
    with each_item() if form.persistent else prologue():
        decode.begin()

    for i in tiles(waves):
        with cluster("tile"):
            read(KV, i + 1)
            decode.read_values(i)
            decode.find_pages(i + ahead + 1)
            interleave(decode.qk(i + 1), decode.exponent(i), copy(KV, i + ahead))
            decode.mask(i + 1)
            interleave(decode.pv(i), decode.maximum(i + 1))
            decode.rescale(i + 1)

    with epilogue():
        decode.normalise()
        decode.store()
