"""Attention to latent rows on gfx950, two tiles in work at any time: four waves, each of which has
a SIMD to itself where it has 32 query rows, so that its own instructions must hide what its
products wait for.

The softmax of a tile ends under the scores of the next one, whose maximum is found under the
products of the former with V.

| cluster | matrix   | vector / transcendental | memory                                            |
|---------|----------|-------------------------|---------------------------------------------------|
| tile    |          |                         | first reads of K(i + 1) and V(i); where rows of   |
|         |          |                         | i + ahead + 1 lie, what a list hides of i + 2     |
|         | QK(i+1)  | exp2, sum, P(i)         | rest of K(i + 1); copy of i + ahead               |
|         |          | mask(i + 1)             |                                                   |
|         | PV(i)    | maximum(i + 1)          | rest of V(i)                                      |
|         |          | rescale O, seldom       |                                                   |

The slot that a copy fills is that of the tile before this one, so one barrier a tile is enough. K
and V pass through bands of accumulation registers of their own: those of V are filled before the
scores, so that the second product follows the first. The waits are derived.
"""

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.problem import LatentProblem
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import Reads, cluster, interleave, read, roles


@schedule(problem=LatentProblem, target="gfx950")
def latent_overlapped(k, s, parts):
    slots = s.choice("slots", *parts.slots, comment="tiles in LDS: how far copies run ahead")
    band = s.choice("band", *parts.bands, comment="reads of K, and of V, in registers")
    mla, ahead = LatentLoop(k, s, parts), slots - 1
    rows, storage, products = mla.rows, mla.storage, mla.products
    softmax, output, tile = mla.softmax, mla.output, storage.tile

    # LDS: a span of the columns of all keys after another, whose layout spreads their keys over all
    # banks, for reads by rows and transposed ones.
    reads = Reads([tile.key_fragments()] * tile.spans, tile.key_read, "keys x columns")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[tile.layout] * tile.spans, reads=reads)

    # Of 256 vector registers a lane, 4 temporaries, these, 28 or less of row state and addresses;
    # and accumulation registers: the bands, with 32 rows Q and the last columns of O.
    entry = rows.entry(s)
    s.registers.tile("S", tile.score_registers, "scores S^T = K Q^T, then P at its start", slots=2)
    s.registers.tile("O", output.registers, "output accumulator O^T")
    if output.rest:
        s.registers.tile("OA", output.rest, "its last columns", file="a")
    s.registers.tile("Q", products.query_registers, "queries", file=mla.shape.second_file)
    width, what = tile.band_unit * band, f"{band} reads on their way to their products"
    s.registers.tile("KB", width, f"K: {what}", file="a")
    s.registers.tile("VB", width, f"V: {what}", file="a")

    mla.over(entry, KV)
    waves = roles(all=range(WAVES))

    with prologue():
        rows.setup()
    with each_item() if rows.persistent else prologue():
        rows.begin()
        products.load_queries()

    for i in tiles(waves):
        with cluster("tile"):
            read(KV, i + 1)
            products.read_values(i)
            rows.find(i + ahead + 1)
            rows.load_list(i + 2)
            interleave(products.qk(i + 1), softmax.exponent(i), copy(KV, i + ahead))
            rows.mask(i + 1)
            interleave(products.pv(i), softmax.maximum(i + 1))
            softmax.rescale(i + 1)

    with epilogue():
        output.normalise()
        output.store()
