"""Attention to latent rows on gfx950, one tile after another: four waves, 16 or 32 query rows each.

Tiles of keys lie in LDS once: K is read from them by rows, and V, their first 512 columns,
transposed. Each wave has Q and O of its rows in registers and goes through all keys.

| cluster | matrix | vector / transcendental        | memory                                   |
|---------|--------|--------------------------------|------------------------------------------|
| tile    |        |                                | where rows of a later tile lie, what a   |
|         |        |                                | list hides of i + 2; copy of i + ahead   |
|         | QK(i)  | K(i) to bf16, if quantised     | K(i), read by read                       |
|         |        | S times scales, mask(i),       | first reads of V(i)                      |
|         |        | maximum, rescale O, exp2, sum, |                                          |
|         |        | P(i)                           |                                          |
|         | PV(i)  | V(i) to bf16, if quantised     | the rest of V(i)                         |

The slot that a copy fills is that of the tile before this one, so one barrier a tile is enough.
Loads return in order: rows are looked up some tiles before they are copied, so that waiting for
them does not wait for the tiles that are on their way. The copy stands under QK where a wave has a
SIMD to itself, and where rows pass through registers.
"""

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import UNSCALED
from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.problem import LatentProblem
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import Reads, cluster, interleave, read, roles


@schedule(problem=LatentProblem, target="gfx950")
def latent_serial(k, s, parts):
    slots = s.choice("slots", *parts.slots, comment="tiles in LDS: how far copies run ahead")
    band = s.choice("band", *parts.bands, comment="reads of K, or of V, in registers")
    mla, ahead = LatentLoop(k, s, parts), slots - 1
    rows, storage, products = mla.rows, mla.storage, mla.products
    softmax, output, tile = mla.softmax, mla.output, storage.tile
    scales = storage.scales or UNSCALED

    # LDS: a span of the columns of all keys after another, whose layout spreads their keys over all
    # banks, for reads by rows and transposed ones.
    reads = Reads([tile.key_fragments()] * tile.spans, tile.key_read, "keys x columns")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[tile.layout] * tile.spans, reads=reads,
                    extra=storage.scale_bytes)  # fmt: skip

    # Vector registers, 256 a lane: 4 temporaries, these, 15 or more of row state and addresses.
    # With 32 rows a wave has accumulation registers besides: Q, the last columns of O.
    entry = rows.entry(s)
    s.registers.tile("S", tile.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", output.registers, "output accumulator O^T")
    if output.rest:
        s.registers.tile("OA", output.rest, "its last columns", file="a")
    s.registers.tile("Q", products.query_registers, "queries", file=mla.shape.second_file)
    width, what = tile.band_unit * band, f"{band} reads on their way to their products"
    s.registers.share("BAND", ("KB", width, f"K: {what}"), ("VB", width, f"V: {what}"))
    if storage.staging:
        s.registers.share("CONVERTED", *storage.staging, apart=storage.apart)
    for raw in storage.fetched:
        s.registers.tile(*raw, file="a")

    mla.over(entry, KV)
    waves = roles(all=range(WAVES))
    alone = mla.shape == ROWS_32  # on its SIMD
    hidden = alone or bool(storage.fetched)

    with prologue():
        rows.setup()
    with each_item() if rows.persistent else prologue():
        rows.begin()
        products.load_queries()

    for i in tiles(waves):
        with cluster("tile"):
            read(KV, i, when=alone)
            rows.find(i + ahead + storage.look_up)
            rows.load_list(i + 2)
            copy(KV, i + ahead, when=not hidden)
            read(KV, i, when=not alone)
            interleave(products.qk(i), copy(KV, i + ahead, when=hidden))
            storage.fetch(i + 2)
            scales.load(i + 1)
            products.read_values(i)
            scales.scale_scores(i)
            rows.mask(i)
            softmax.maximum(i)
            softmax.rescale(i)
            softmax.exponent(i)
            products.pv(i)

    with epilogue():
        output.normalise()
        output.store()
