"""MLA decode on gfx950 in the absorbed form 576 / 512: four waves, 16 or 32 query rows each.

With 32 rows a wave, which is usual where more than 64 share keys, the table is that of
`shared/wide_decode.py`. This file's is that of 16.

A workgroup has up to 64 query rows of one sequence (heads, or heads of several new tokens) and all
of its keys or one split of them. Tiles of 32 keys lie in LDS once: K is read from them by rows,
and V, their first 512 columns, transposed. Each wave has Q and O of its rows in registers and goes
through all keys.

| cluster | matrix | vector / transcendental      | memory                                     |
|---------|--------|------------------------------|--------------------------------------------|
| tile    |        |                              | pages of i + ahead + 2; DMA of i + ahead   |
|         | QK(i)  |                              | K(i), fragment by fragment                 |
|         |        | mask(i), maximum, rescale O, | first fragments of V(i)                    |
|         |        | exp2, sum, P(i)              |                                            |
|         | PV(i)  |                              | the rest of V(i)                           |

The slot that a tile's DMA fills is that of the tile before this one, so one barrier a tile is
enough. Loads return in order: pages are looked up two tiles before they are used, so that waiting
for them does not wait for the tiles that are on their way. Every lane looks up the page of its own
row; so pages may have any size. The waits are derived.

With `persistent` a workgroup takes one item after another: those that the plan gives it, or with
`arguments=aiter` those of AITER's host code, all of whose query rows it computes.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_16, ROWS_32
from mlagen.attention.latent.gfx950.sizes import KEYS, SPAN, WAVES
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.form import rows_of
from mlagen.families.mla_decode.gfx950.operations import Decode
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.schedules.shared.e4m3_rows import e4m3_rows
from mlagen.schedules.shared.stored_rows import stored_rows
from mlagen.schedules.shared.wide_decode import wide_decode
from mlagen.schedules.shared.wide_e4m3_rows import wide_e4m3_rows
from mlagen.schedules.shared.wide_stored_rows import wide_stored_rows
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def mla_decode_gfx950(k, s):
    wide = rows_of(k, s) == ROWS_32.rows
    if k.compute == "fp8":
        (wide_e4m3_rows if wide else e4m3_rows)(k, s)
        return
    if k.cache_dtype != "bf16":
        (wide_stored_rows if wide else stored_rows)(k, s)
        return
    if wide:
        wide_decode(k, s)
        return

    shape = ROWS_16
    slots = s.choice("slots", 4, 2, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", 6, 4, 2, comment="fragments of K, or of V, in registers")
    form, ahead = work_form_of(k, s), slots - 1

    # LDS: 64 columns of all keys after another, each 8 keys x 128 bytes. Bits 7..9 are a key's
    # number in 8, which the swizzle spreads over all banks, for reads by rows and transposed ones.
    spans = k.d_qk * 2 // SPAN
    area = Subtiled(KEYS, SPAN, 8, SPAN, Xor((7, 8, 9), (4, 5, 6)))
    reads = Reads([shape.key_fragments()] * spans, 16, "keys x columns, read by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * spans, reads=reads)

    # Vector registers, 256 a lane: 4 temporaries, these, 15 or so of row state and addresses.
    entry = form.entry(s)
    s.registers.tile("S", shape.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", k.d_v // shape.parts, "output accumulator O^T")
    s.registers.tile("Q", k.d_qk // shape.parts // 2, "queries")
    what = f"{band} fragments on their way to their products"
    s.registers.share("BAND", ("KB", 4 * band, f"K: {what}"), ("VB", 4 * band, f"V: {what}"))

    decode = Decode(k, s, entry, KV, shape, form)
    waves = roles(all=range(WAVES))

    with prologue():
        decode.setup()
    with each_item() if form.persistent else prologue():
        decode.begin()

    for i in tiles(waves):
        with cluster("tile"):
            decode.find_pages(i + ahead + 2)
            copy(KV, i + ahead)
            read(KV, i)
            decode.qk(i)
            decode.read_values(i)
            decode.softmax(i)
            decode.pv(i)

    with epilogue():
        decode.normalise()
        decode.store()
