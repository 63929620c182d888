"""MLA decode on gfx950 with 32 query rows a wave, 128 a workgroup: more than 64 rows share a
reading of their keys.

A wave has a SIMD to itself, so its own instructions must hide what its products wait for. Two tiles
are in work at any time: the softmax of a tile ends under the scores of the next one, whose maximum
is found under the products of the former with V.

| cluster | matrix   | vector / transcendental | memory                                            |
|---------|----------|-------------------------|---------------------------------------------------|
| tile    |          |                         | first fragments of K(i + 1) and V(i)              |
|         | QK(i+1)  | exp2, sum, P(i)         | rest of K(i + 1); DMA of i + ahead; pages         |
|         |          | mask(i + 1)             |                                                   |
|         | PV(i)    | maximum(i + 1)          | rest of V(i)                                      |
|         |          | rescale O, seldom       |                                                   |

The slot that a tile's DMA fills is that of the tile before this one, so one barrier a tile is
enough. K and V pass through bands of registers of their own: those of V are filled before the
scores, so that the second product follows the first. The waits are derived.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.attention.latent.gfx950.sizes import KEYS, SPAN, WAVES
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.form import shape_of
from mlagen.families.mla_decode.gfx950.wide import WideDecode
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def wide_decode(k, s):
    shape = shape_of(ROWS_32, k, s)
    slots = s.choice(
        "slots", 4, comment="tiles in LDS: how far the DMA runs ahead; more do not fit"
    )
    band = s.choice("band", 6, 5, 4, comment="fragments of K, and of V, in registers")
    form, ahead = work_form_of(k, s), slots - 1

    # LDS: 64 columns of all keys after another, keys of 128 bytes. Bits 8..10 are a key's number in
    # 16 without its last bit, which the swizzle spreads over all banks.
    spans = k.d_qk * 2 // SPAN
    area = Subtiled(KEYS, SPAN, 16, SPAN, Xor((8, 9, 10), (6, 5, 4)))
    reads = Reads([shape.key_fragments()] * spans, 16, "keys x columns, read by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * spans, reads=reads)

    # Of 256 vector registers a lane, 4 temporaries, these, 23 or so of row state and addresses; all
    # of 256 accumulation registers: Q, the bands, the rest of O.
    entry = form.entry(s)
    s.registers.tile("S", shape.score_registers, "scores S^T = K Q^T, then P at its start", slots=2)
    s.registers.tile("O", 192, "output accumulator O^T, its first 384 columns")
    s.registers.tile("OA", 64, "its last 128 columns", file="a")
    s.registers.tile("Q", k.d_qk // shape.parts // 2, "queries", file="a")
    what = f"{band} fragments on their way to their products"
    s.registers.tile("KB", 4 * band, f"K: {what}", file="a")
    s.registers.tile("VB", 4 * band, f"V: {what}", file="a")

    decode = WideDecode(k, s, entry, KV, shape, form)
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
