"""Top-k sparse MLA on gfx950 with 32 heads a wave, 128 a workgroup: more than 64 heads share a
reading of their rows.

The loop is that of MLA decode with so many rows (`schedules/shared/wide_decode.py`): two tiles are
in work at any time.

| cluster | matrix   | vector / transcendental | memory                                            |
|---------|----------|-------------------------|---------------------------------------------------|
| tile    |          |                         | first fragments of K(i + 1) and V(i)              |
|         |          |                         | indices of i + ahead + 1, to fetch rows           |
|         |          |                         | indices of i + 2, for the mask                    |
|         | QK(i+1)  | exp2, sum, P(i)         | rest of K(i + 1); DMA of i + ahead                |
|         |          | mask(i + 1)             |                                                   |
|         | PV(i)    | maximum(i + 1)          | rest of V(i)                                      |
|         |          | rescale O, seldom       |                                                   |

The waits are derived.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.attention.latent.gfx950.sizes import KEYS, SPAN, WAVES
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.gfx950.wide import WideSparse
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MlaSparseDecodeConfig, target="gfx950")
def wide_listed_rows(k, s):
    shape = ROWS_32
    band = s.choice("band", 6, 5, 4, comment="fragments of K, and of V, in registers")
    slots, ahead = 4, 3  # tiles in LDS, and how far the DMA runs ahead

    # LDS: 64 columns of all keys after another, keys of 128 bytes, as in MLA decode.
    spans = k.d_qk * 2 // SPAN
    area = Subtiled(KEYS, SPAN, 16, SPAN, Xor((8, 9, 10), (6, 5, 4)))
    reads = Reads([shape.key_fragments()] * spans, 16, "keys x columns, read by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * spans, reads=reads)

    # Of 256 vector registers a lane, 4 temporaries, these, 28 or less of row state and addresses;
    # all of 256 accumulation registers: Q, the bands, the rest of O.
    entry = s.entry("unit", "part of its keys", temporaries=4)
    s.registers.tile("S", shape.score_registers, "scores S^T = K Q^T, then P at its start", slots=2)
    s.registers.tile("O", 192, "output accumulator O^T, its first 384 columns")
    s.registers.tile("OA", 64, "its last 128 columns", file="a")
    s.registers.tile("Q", k.d_qk // shape.parts // 2, "queries", file="a")
    what = f"{band} fragments on their way to their products"
    s.registers.tile("KB", 4 * band, f"K: {what}", file="a")
    s.registers.tile("VB", 4 * band, f"V: {what}", file="a")

    sparse = WideSparse(k, s, entry, KV, shape)
    waves = roles(all=range(WAVES))

    with prologue():
        sparse.begin()

    for i in tiles(waves):
        with cluster("tile"):
            read(KV, i + 1)
            sparse.read_values(i)
            sparse.find_rows(i + ahead + 1)
            sparse.load_list(i + 2)
            interleave(sparse.qk(i + 1), sparse.exponent(i), copy(KV, i + ahead))
            sparse.mask(i + 1)
            interleave(sparse.pv(i), sparse.maximum(i + 1))
            sparse.rescale(i + 1)

    with epilogue():
        sparse.normalise()
        sparse.store()
