"""MLA decode on gfx950 over caches of e4m3 and of rope-aware rows with 32 query rows a wave, 128 a
workgroup: more than 64 rows share a reading of their keys.

The table is that of `shared/stored_rows.py`: what is multiplied in bf16 is converted on the way
from LDS, once for 32 rows. A wave has a SIMD to itself. Its queries and the last columns of O are
accumulation registers; what is converted has to be in vector registers.

| cluster | matrix | vector / transcendental        | memory                                   |
|---------|--------|--------------------------------|------------------------------------------|
| tile    |        |                                | first reads of K(i); pages of            |
|         |        |                                | i + ahead + 1                            |
|         | QK(i)  | K(i) to bf16 where Q is bf16   | K(i), read by read; DMA of i + ahead     |
|         |        | S times scales, mask(i),       | first reads of V(i); scales              |
|         |        | maximum, rescale O, seldom,    |                                          |
|         |        | exp2, sum, P times scales      |                                          |
|         | PV(i)  | V(i) to bf16                   | the rest of V(i)                         |
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.stored import AHEAD, KEYS, SPAN, Stored
from mlagen.families.mla_decode.gfx950.wide_stored import WideStoredDecode
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def wide_stored_rows(k, s):
    stored = Stored.of(k, s, ROWS_32)
    slots = s.choice("slots", 3, 2, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", 8, 4, comment="reads of K, or of V, in registers")
    form, ahead = work_form_of(k, s), slots - 1

    # LDS: 64 bytes of all keys after another. Bits 6..10 are a key's number in 32.
    area = Subtiled(KEYS, SPAN, 32, SPAN, Xor((8, 9, 10), (4, 5, 5)))
    reads = Reads([stored.key_fragments()] * stored.spans, 8, "keys x columns, by ds_read_b64")
    layout = [area] * stored.spans
    KV = s.lds.ring(
        "KV", slots=slots, waves=WAVES, layout=layout, reads=reads, extra=stored.scale_bytes
    )

    # Of 256 vector registers a lane, 4 temporaries, these, 20 or so of row state and addresses; and
    # accumulation registers: the rest of O, Q.
    entry = form.entry(s)
    s.registers.tile("S", stored.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", 160, "output accumulator O^T, its first 320 columns")
    s.registers.tile("OA", 96, "its last 192 columns", file="a")
    s.registers.tile("Q", stored.query_registers, "queries", file="a")
    what = f"{band} reads on their way to their products"
    s.registers.share("BAND", ("KB", 2 * band, f"K: {what}"), ("VB", 2 * band, f"V: {what}"))
    wide = ("WIDE", 4 * AHEAD, "operands of bf16 that were stored in e4m3")
    s.registers.share("CONVERTED", wide, *stored.scales)

    decode = WideStoredDecode(k, s, entry, KV, stored, form)
    waves = roles(all=range(WAVES))

    with prologue():
        decode.setup()
    with each_item() if form.persistent else prologue():
        decode.begin()

    for i in tiles(waves):
        with cluster("tile"):
            read(KV, i)
            decode.find_pages(i + ahead + 1)
            interleave(decode.qk(i), copy(KV, i + ahead))
            decode.read_values(i)
            decode.softmax(i)
            decode.pv(i)

    with epilogue():
        decode.normalise()
        decode.store()
