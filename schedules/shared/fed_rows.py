"""Top-k sparse MLA on gfx950 over rows of e4m3: the loop of `schedules/shared/listed_rows.py`, with
rows that pass through registers on their way to LDS.

| cluster | matrix | vector / transcendental      | memory                                     |
|---------|--------|------------------------------|--------------------------------------------|
| tile    |        |                              | indices of i + 3, to fetch rows            |
|         |        |                              | indices of i + 2, for the mask             |
|         | QK(i)  | rows of i + 1 to bf16        | K(i), fragment by fragment; stores i + 1   |
|         |        |                              | rows of i + 2; scales of the keys of i + 1 |
|         |        | S times scales, mask(i),     | first fragments of V(i)                    |
|         |        | maximum, rescale O, exp2,    |                                            |
|         |        | sum, P(i) times scales       |                                            |
|         | PV(i)  |                              | the rest of V(i)                           |

The slot that a tile is stored in is that of the tile before this one. The waits are derived.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_16
from mlagen.attention.latent.gfx950.sizes import KEYS, SPAN, WAVES
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.gfx950.fed import FedSparse
from mlagen.families.mla_sparse.gfx950.stored import Stored
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MlaSparseDecodeConfig, target="gfx950")
def fed_rows(k, s):
    # Positions of keys take the registers of a fragment.
    bands = (3, 2) if getattr(k, "causal", False) else (4, 3, 2)
    band = s.choice("band", *bands, comment="fragments of K, or of V, in registers")
    slots = 2  # tiles in LDS: the one that is stored, and the one that is read
    shape, stored = ROWS_16, Stored(k)

    # LDS: 64 columns of all keys after another, each 8 keys x 128 bytes, as in MLA decode.
    spans = k.d_qk * 2 // SPAN
    area = Subtiled(KEYS, SPAN, 8, SPAN, Xor((7, 8, 9), (4, 5, 6)))
    reads = Reads([shape.key_fragments()] * spans, 16, "keys x columns, read by ds_read_b128")
    KV = s.lds.ring("KV", slots=slots, waves=WAVES, layout=[area] * spans, reads=reads)

    # Vector registers, 256 a lane: 4 temporaries, these, and 20 or so of row state and addresses;
    # rows on their way in accumulation registers.
    entry = s.entry("unit", "part of its keys", temporaries=4)
    s.registers.tile("S", shape.score_registers, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", k.d_v // shape.parts, "output accumulator O^T")
    s.registers.tile("Q", k.d_qk // shape.parts // 2, "queries")
    what = f"{band} fragments on their way to their products"
    s.registers.share("BAND", ("KB", 4 * band, f"K: {what}"), ("VB", 4 * band, f"V: {what}"))
    s.registers.tile("WIDE", 8, "numbers that become bf16; scales of keys")
    s.registers.tile("RAW", stored.registers, "rows as they are stored", file="a")

    sparse = FedSparse(k, s, entry, KV, shape, stored)
    waves = roles(all=range(WAVES))

    with prologue():
        sparse.begin()

    for i in tiles(waves):
        with cluster("tile"):
            sparse.find_rows(i + 3)
            sparse.load_list(i + 2)
            read(KV, i)
            interleave(sparse.qk(i), copy(KV, i + 1))
            sparse.fetch(i + 2)
            sparse.load_scales(i + 1)
            sparse.read_values(i)
            sparse.softmax(i)
            sparse.pv(i)

    with epilogue():
        sparse.normalise()
        sparse.store()
