"""Top-k sparse MLA on gfx950: four waves, 16 heads of a query each, over rows that a list names.

A workgroup has up to 64 heads of a query and all of its keys, or one part of them. The loop is that
of MLA decode (`schedules/mla_decode_gfx950.py`): tiles of 32 keys lie in LDS once, K is read from
them by rows, and V, their first 512 columns, transposed.

| cluster | matrix | vector / transcendental      | memory                                     |
|---------|--------|------------------------------|--------------------------------------------|
| tile    |        |                              | indices of i + ahead + 2, to fetch rows    |
|         |        |                              | indices of i + 2, for the mask             |
|         |        |                              | DMA of i + ahead                           |
|         | QK(i)  |                              | K(i), fragment by fragment                 |
|         |        | mask(i), maximum, rescale O, | first fragments of V(i)                    |
|         |        | exp2, sum, P(i)              |                                            |
|         | PV(i)  |                              | the rest of V(i)                           |

Loads return in order: indices are loaded two tiles before they are used, so that waiting for them
does not wait for tiles that are on their way. Each wave masks by indices that it has loaded itself,
one a lane; a row that is none is fetched as zeros. The waits are derived.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_16
from mlagen.attention.latent.gfx950.sizes import KEYS, SPAN, WAVES
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.gfx950.operations import Sparse
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, read, roles


@schedule(problem=MlaSparseDecodeConfig, target="gfx950")
def listed_rows(k, s, bands):
    """The schedule of `k`; `bands`: fragments of K, or of V, that registers may have room for."""
    slots = s.choice("slots", 4, 2, comment="tiles in LDS: how far the DMA runs ahead")
    band = s.choice("band", *bands, comment="fragments of K, or of V, in registers")
    shape, ahead = ROWS_16, slots - 1

    # LDS: 64 columns of all keys after another, each 8 keys x 128 bytes, as in MLA decode.
    spans = k.d_qk * 2 // SPAN
    area = Subtiled(KEYS, SPAN, 8, SPAN, Xor((7, 8, 9), (4, 5, 6)))
    reads = Reads([shape.key_fragments()] * spans, 16, "keys x columns, read by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * spans, reads=reads)

    # Vector registers, 256 a lane: 4 temporaries, these, and 20 or so of row state and addresses.
    entry = s.entry("unit", "part of its keys", temporaries=4)
    s.registers.tile("S", shape.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", k.d_v // shape.parts, "output accumulator O^T")
    s.registers.tile("Q", k.d_qk // shape.parts // 2, "queries")
    what = f"{band} fragments on their way to their products"
    s.registers.share("BAND", ("KB", 4 * band, f"K: {what}"), ("VB", 4 * band, f"V: {what}"))

    sparse = Sparse(k, s, entry, KV, shape)
    waves = roles(all=range(WAVES))

    with prologue():
        sparse.begin()

    for i in tiles(waves):
        with cluster("tile"):
            sparse.find_rows(i + ahead + 2)
            sparse.load_list(i + 2)
            copy(KV, i + ahead)
            read(KV, i)
            sparse.qk(i)
            sparse.read_values(i)
            sparse.softmax(i)
            sparse.pv(i)

    with epilogue():
        sparse.normalise()
        sparse.store()
