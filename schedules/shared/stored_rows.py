"""The table of MLA decode on gfx950 over caches of e4m3 and of rope-aware rows.

A workgroup has up to 64 query rows of one sequence, 16 a wave, and all of its keys or one split of
them. Tiles of 64 keys lie in LDS as they are stored. Each wave has Q and O of its rows in registers
and goes through all keys; what it multiplies in bf16 it converts on the way from LDS.

| cluster | matrix | vector / transcendental        | memory                                   |
|---------|--------|--------------------------------|------------------------------------------|
| tile    |        |                                | pages of i + ahead + 1; DMA of i + ahead |
|         | QK(i)  | K(i) to bf16 where Q is bf16   | K(i), read by read                       |
|         |        | S times scales, mask(i),       | first reads of V(i); scales              |
|         |        | maximum, rescale O, exp2, sum, |                                          |
|         |        | P times scales                 |                                          |
|         | PV(i)  | V(i) to bf16                   | the rest of V(i)                         |

Barriers, pages and waits are those of `schedules/mla_decode_gfx950.py`.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_16
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.stored import AHEAD, KEYS, SPAN, Stored
from mlagen.families.mla_decode.gfx950.stored_operations import StoredDecode
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def stored_rows(k, s):
    stored = Stored.of(k, s, ROWS_16)
    slots = s.choice("slots", *stored.slots, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", *stored.bands, comment="reads of K, or of V, in registers")
    form, ahead = work_form_of(k, s), slots - 1

    # LDS: 64 bytes of all keys after another. Bits 6..10 are a key's number in 32, which the
    # swizzle spreads over all banks, for reads by rows and for transposing ones.
    area = Subtiled(KEYS, SPAN, 32, SPAN, Xor((8, 9, 10), (4, 5, 5)))
    reads = Reads([stored.key_fragments()] * stored.spans, 8, "keys x columns, by ds_read_b64")
    layout = [area] * stored.spans
    KV = s.lds.ring(
        "KV", slots=slots, waves=WAVES, layout=layout, reads=reads, extra=stored.scale_bytes
    )

    # Vector registers, 256 a lane: 4 temporaries, these, 15 or so of row state and addresses.
    entry = form.entry(s)
    s.registers.tile("S", stored.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", k.d_v // stored.shape.parts, "output accumulator O^T")
    s.registers.tile("Q", stored.query_registers, "queries")
    what = f"{band} reads on their way to their products"
    s.registers.share("BAND", ("KB", 2 * band, f"K: {what}"), ("VB", 2 * band, f"V: {what}"))
    wide = ("WIDE", 4 * AHEAD, "operands of bf16 that were stored in e4m3")
    s.registers.share("CONVERTED", wide, *stored.scales, apart=not stored.few_registers)

    decode = StoredDecode(k, s, entry, KV, stored, form)
    waves = roles(all=range(WAVES))

    with prologue():
        decode.setup()
    with each_item() if form.persistent else prologue():
        decode.begin()

    for i in tiles(waves):
        with cluster("tile"):
            decode.find_pages(i + ahead + 1)
            copy(KV, i + ahead)
            read(KV, i)
            decode.qk(i)
            decode.read_values(i)
            decode.softmax(i)
            decode.pv(i)

    with epilogue():
        decode.normalise()
        decode.store()
