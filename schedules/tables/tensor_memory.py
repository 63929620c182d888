"""Attention to latent rows on Blackwell: one block of up to 64 query rows, or a CTA pair of up to
128, whose sums lie in tensor memory.

| feeder, tile i            | math, tile i              | softmax, tile i                  |
|---------------------------|---------------------------|----------------------------------|
| rows of K(i) to SMEM, of  | S(i) = Q K(i)^T           | S(i) from TMEM; give S back      |
| a pair then those of V(i) | of a pair: give K(i) back | mask, maxima, P(i) in registers  |
| places of tile i+1        | O += P(i-1) V(i-1)        | O *= alpha in TMEM; P(i) to SMEM |
|                           | give P and V of i-1 back  | of listed rows: list of tile i+1 |

Of a pair each block has half of a tile's keys as K, and half of each 256 columns of all keys as V;
one thread of the leader multiplies for both. Before the first tile math copies most of Q to TMEM.

`storage` says how rows come. `Boxes`: one warp feeds by TMA. `Gathered`: a warpgroup feeds by
cp.async; of a pair rows land in the own block, in `raw` pipelines in the same place, and are handed
on to the leader when those of the tile after have been asked for. `Dequantized`: feeders load a
tile to registers before they store the one before it, of a pair one K and one V.
"""

from dataclasses import dataclass

from mlagen.attention.latent.sm_100a.landing import landing
from mlagen.attention.latent.sm_100a.parts import Latent
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.dsl import acquire, release


@dataclass(frozen=True)
class Budget:
    """Registers of a thread of the softmax and of a feeder that converts, 0: the launch's share;
    columns of O that the softmax has at once."""

    softmax: int = 0
    feeder: int = 0
    o: int = 32


@schedule(problem=MlaDecodeConfig, target="sm_100a")
def tensor_memory(k, s, rows, storage, budget_of):
    """`budget_of(k, ctas, several)`: the kernel's budget."""
    ctas = s.choice("ctas", *((2, 1) if rows.on_a_pair(k) else (1,)),
                    comment="2: a CTA pair multiplies together, 64 query rows in each")  # fmt: skip
    pair, threads, several = ctas == 2, storage.threads(ctas), 0
    s.cta_cluster(ctas, pair=pair)
    if rows.persists:
        several = s.choice("persistent", 0, 1, comment="blocks take one work item after another")
        s.persistent = "apart" if several else ""
    budget = budget_of(k, ctas, several)
    feeds = {"warpgroups": threads // 128, "warps": threads % 128 // 32}
    softmax = s.role("softmax", warpgroups=1, registers=budget.softmax)
    feeder = s.role("feeder", **feeds, registers=budget.feeder)
    fills_v = pair and storage.converts
    filler = s.role("filler", **feeds, registers=budget.feeder) if fills_v else feeder
    math = s.role("math", warps=1, single=True, leader=pair)

    # SMEM: rows of 128 bytes in the 128-byte swizzle. What is left of a row of e4m3 is half of a
    # tile's width, and so are its weights.
    columns, ring = -(-k.d_qk * k.product_bytes // 128), 4 // k.product_bytes
    halves = k.d_v * k.product_bytes // 256
    sizes = {
        "Q": ("q", columns, 64, 1), "P": ("softmax", 1, 64, 1),
        "K": ("cache", columns, 64 // ctas, ring), "V": ("cache", halves, 64, ring),
    }  # fmt: skip
    tile = {
        name: [s.smem.tile(f"{name}{n}", of, rows=lines, row_bytes=128, slots=slots)
               for n in range(count)]
        for name in ("QPKV" if pair else "QKP") for of, count, lines, slots in [sizes[name]]
    }  # fmt: skip

    def of_rows(name, tiles, role):
        return s.smem.pipeline(name, *tiles, producer=role.name, consumer=math.name, releases=1,
                               **storage.fills(ctas))  # fmt: skip

    # Where queries are converted, the softmax does it, which waits for scores anyway.
    reader = feeder if k.as_stored else softmax
    s.smem.pipeline(
        "query", *tile["Q"], producer=reader.name, consumer=math.name, resident=True,
        releases=1 if s.persistent else 0, producer_threads=0 if k.as_stored else reader.threads,
        by_warps=False if k.as_stored else "fenced",
    )  # fmt: skip
    if not pair:
        keys = values = of_rows("keys", tile["K"], feeder)
    weights = s.smem.pipeline(
        "weights", *tile["P"], producer=softmax.name, consumer=math.name, releases=1,
        producer_threads=softmax.threads, by_warps="fenced",
    )  # fmt: skip
    if pair:
        keys, values = of_rows("keys", tile["K"], feeder), of_rows("values", tile["V"], filler)
    if pair and storage.lands:
        raw_keys, raw_values = landing(s, "raw K", keys), landing(s, "raw V", values)
    s.smem.room("of warps", 2 * 4 * softmax.threads)

    # TMEM: 64 rows by half of the columns in 64 lanes, the other half in the others.
    sums = s.region("O", k.d_v // 2, producer=math.name, consumer=softmax.name)
    S = s.columns("S", 32, slots=1)
    scores = s.smem.pipeline(
        "scores", S, producer=math.name, consumer=softmax.name, releases=len(softmax.warps)
    )  # fmt: skip
    # The rest has the last tiles of Q, as many as fit, 32 columns each.
    s.region("Q", 32 * min(columns, 7), producer=math.name, consumer=math.name)

    s.named("s", ".b32", 32, "S, then P: a row, half of a tile")
    s.named("p", ".b32", 8 * k.product_bytes, "P as it is stored")
    s.named("o", ".b32", budget.o, "columns of O that are rescaled or stored")
    mla = Latent(k, s, rows, storage, softmax, sums)

    for role in s.roles:
        with prologue(role):
            mla.rows.setup(role)
            mla.queries.load(role)
        with each_item(role):
            mla.rows.begin(role)

    if storage.converts:
        for role, part in {feeder: keys, filler: values}.items():  # of a block these are one
            for i in tiles(role):
                copy(part, i)
                mla.queries.load_item(role, i)
                mla.storage.fetch(part, i + 1)
                mla.storage.look_up(part, i + 2)
    elif pair and storage.lands:
        for i in tiles(feeder):
            mla.storage.find_rows(i + 1)
            mla.storage.look_up(i + 2)
            acquire(keys, i + 1)
            copy(raw_keys, i + 1)
            copy(keys, i)
            acquire(values, i + 1)
            copy(raw_values, i + 1)
            copy(values, i)
    else:
        for i in tiles(feeder):
            mla.storage.find_rows(i)
            mla.storage.look_up(i + 1)
            copy(keys, i)
            mla.queries.load_item(feeder, i)
            copy(values, i, when=pair)

    for i in tiles(math):
        mla.products.keep_queries(i)
        mla.products.qk(i)
        mla.queries.release(i)
        release(keys, i, when=pair)
        mla.products.pv(i - 1)
        release(weights, i - 1)
        release(values, i - 1)

    for i in tiles(softmax):
        mla.queries.load_item(softmax, i)
        mla.softmax.load_scores(i)
        release(scores, i)
        mla.softmax.row_maximum(i)
        mla.rows.load_list(i + 1)
        mla.softmax.exponent(i)
        acquire(weights, i)
        mla.softmax.rescale(i)
        copy(weights, i)
        mla.rows.load_scales(i + 1)
        mla.rows.look_up_scales(i + 2)
    with epilogue(softmax):
        mla.output.finish()
