"""The table of MLA decode on gfx950 over caches of e4m3 and of rope-aware rows with 32 query rows a
wave, 128 a workgroup: what is converted serves twice as many rows.

Clusters, LDS and pages are those of `schedules/shared/stored_rows.py`. O and Q take more registers
than there are vector registers, so M seldom moves, as in `schedules/shared/wide_decode.py`.
"""

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.gfx950.form import WAVES
from mlagen.families.mla_decode.gfx950.shape import ROWS_32
from mlagen.families.mla_decode.gfx950.stored import AHEAD, KEYS, SPAN, Stored
from mlagen.families.mla_decode.gfx950.stored_operations import WideStoredDecode
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, read, roles


@schedule(problem=MlaDecodeConfig, target="gfx950")
def wide_stored_rows(k, s):
    stored = Stored.of(k, s, ROWS_32)
    slots = s.choice("slots", *stored.slots, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", *stored.bands, comment="reads of K, or of V, in registers")
    ahead = slots - 1

    # LDS: 64 bytes of all keys after another. Bits 6..10 are a key's number in 32, which the
    # swizzle spreads over all banks, for reads by rows and for transposing ones.
    area = Subtiled(KEYS, SPAN, 32, SPAN, Xor((8, 9, 10), (4, 5, 5)))
    reads = Reads([stored.key_fragments()] * stored.spans, 8, "keys x columns, by ds_read_b64")
    layout = [area] * stored.spans
    KV = s.lds.ring(
        "KV", slots=slots, waves=WAVES, layout=layout, reads=reads, extra=stored.scale_bytes
    )

    # Of 256 vector registers a lane, 4 temporaries, these, 20 or so of row state and addresses; of
    # 256 accumulation registers Q and the rest of O.
    entry = s.entry("work item", temporaries=4)
    s.registers.tile("S", stored.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", 160, "output accumulator O^T, its first 320 columns")
    s.registers.tile("OA", 96, "its last 192 columns", file="a")
    s.registers.tile("Q", stored.query_registers, "queries", file="a")
    what = f"{band} reads on their way to their products"
    s.registers.share("BAND", ("KB", 2 * band, f"K: {what}"), ("VB", 2 * band, f"V: {what}"))
    wide = ("WIDE", 4 * AHEAD, "operands of bf16 that were stored in e4m3")
    s.registers.share("CONVERTED", wide, *stored.scales, apart=not stored.few_registers)

    decode = WideStoredDecode(k, s, entry, KV, stored)
    waves = roles(all=range(WAVES))

    with prologue():
        decode.setup()

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
