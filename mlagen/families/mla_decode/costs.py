"""Costs of MLA decode's variants, which a plan's splits are chosen by. Three GPUs are known.

Numbers of an H200 are fitted by eye to 340
runs of other split lengths, each after another library's kernel: 16 and 128 heads, bf16, 1 to 32
sequences of 1024 to 16384 keys (`benchmarks/decode_grid.py --sweep`, at commits cf30770 and
4ee70ac), longer ones warm. Those of few query rows and of products of e4m3 are fitted to 90 runs of
16 heads, 1 to 64 sequences of 1024 to 32768 keys (at commit ee4c8433), those of both together to
170 runs (at commit ff2e49ba). Those of an MI355X are
predictions, of the cycle model and of 6.5 TB/s from HBM for all 256 compute units: nothing was
measured on one. Those of a B200 are predictions as well: a bound by pipe of what was executed in
the emulator, of which FlashMLA's published speed is 82 %, and assumptions, each of which is named
where it stands.
"""

from __future__ import annotations

from dataclasses import replace

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.problem import item_rows
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.unit import B200_SMS, MI355X_CUS
from mlagen.problem.formats import ELEMENT_TYPES

# An H200. 64 x 512 fp32 of a part in 0.025 us are 5.2 TB/s, from L2. A whole item takes 12 us less
# where it follows another one: 256 of 64 to 512 tiles took 247, 473, 974 and 1969 us, and 512 of 64
# took 467. Pieces of different lengths: where there are more row blocks than SMs each of 103 calls
# ended earlier by them, by up to 35 %; with fewer, where memory limits these and each has keys of
# its own, up to 16 % later.
SEESAW = Costs()
# An e4m3 cache is turned into bf16 first: 635 us for 256 items of 128 tiles.
SEESAW_KV_FP8 = Costs(tile=2.2, uneven="always")
SEESAW_QKV_FP8 = Costs(10.1, 1.1, ((2.0, 1.2), (5.0, 0.3)), pair=0.0, loop=0.0, merge=3.6,
                       together=1.4, of_each=0.12, uneven="always")  # fmt: skip
# Few rows must be estimated to end earlier by 8 %: memory limits them, so that an item is faster
# than estimated while other SMs are idle, as in the last round of equal splits.
SWAP_AB = Costs(7.1, 1.15, ((1.05, 2.3), (6.9, 1.27)), pair=0.0, loop=0.0, merge=2.25, part=0.02,
                follows=0.0, uneven="crowded", gain=0.92)  # fmt: skip
SWAP_AB_KV_FP8 = replace(SWAP_AB, start=7.6, tile=1.75, crowd=((1.6, 0.3), (3.6, 0.1)), part=0.025)
SWAP_AB_QKV_FP8 = replace(SWAP_AB, start=7.0, tile=0.87, crowd=((1.05, 0.92), (4.4, 0.5)))

# 64 keys take 4,006 cycles at 2.4 GHz with 64 rows and 4,840 with 128, over e4m3 4,856 and 5,394
# (`mlagen simulate mla_decode_gfx950 --shape lengths=2048 --constant hbm=100000`). The rest is a
# kernel's start, of the same model: 4 us, dispatch, the first tiles' way, the output's.
MI355X = Costs(start=7.0, pair=0.0, loop=0.0, merge=4.0, follows=0.0, uneven="never")
MI355X_TILES = {64: (1.67, 2.02), 128: (2.02, 2.25)}  # by rows of a block, of bf16 and of others
HBM = 6.5e6  # bytes a microsecond that all compute units together get

# A B200, of which nothing was measured. Clocks of an SM for 64 keys, of a block and of a CTA pair:
# SMEM's, the slowest pipe (`benchmarks/mla_decode_bound_sm100.py`).
B200_CLOCKS = {"bf16": (1992, 1416), "rope-aware": (2252, 1676), "fp8": (968, 664)}
# So many in a microsecond are 2,250 TFLOP/s, NVIDIA's data sheet. FlashMLA's sparse prefill has
# 82 % of its bound by the same rates (docs/mla_sparse_speed.md): decode is assumed to have it, too.
B200_MHZ, B200_REACHED = 1856, 0.82
# 8 TB/s, the data sheet's; FlashMLA's README has 3,000 of 3,350 GB/s for decode on an H800, and the
# same share is assumed here.
B200_HBM = 8e6 * 0.9
# Assumed: four accesses of 0.8 us one after the other (item, length, page, rows), and 1 us from the
# last product to the last store. A further item of a block has this end, and the scores and the
# softmax of a tile, which nothing hides; what it waits for is on its way before that. The launch is
# in all choices. The merge, which is launched ahead,
# is taken to have H200's 1.5 us; it reads 64 rows at the 11.3 TB/s that FlashMLA's sparse prefill
# draws from L2 at its published speed.
B200 = Costs(start=4.2, pair=0.0, loop=0.0, merge=1.5, part=64 * 512 * 4 / 11.3e6, follows=0.0,
             uneven="always", further=2.0)  # fmt: skip


def seesaw(config: MlaDecodeConfig) -> Costs:
    """Of the two warpgroups with products of bf16, over what the cache holds."""
    return SEESAW if config.cache_dtype == "bf16" else SEESAW_KV_FP8


def swap_ab(config: MlaDecodeConfig) -> Costs:
    """Of few query rows, with products of bf16 or f16, over what the cache holds."""
    return SWAP_AB if config.cache_dtype == "bf16" else SWAP_AB_KV_FP8


def of_rows(costs: Costs, config: MlaDecodeConfig, rows: int = BLOCK_ROWS) -> Costs:
    """These of 64 rows, for blocks of `rows`: a part of few rows is read faster, down to half."""
    return replace(costs, part=costs.part * max(min(item_rows(config), rows) / 64, 0.5))


def on_mi355x(config: MlaDecodeConfig, rows: int) -> Costs:
    """Predicted, of blocks of `rows` query rows."""
    tile = MI355X_TILES[rows][config.cache_dtype != "bf16"]
    shared = TILE * _row_bytes(config) * MI355X_CUS / HBM  # where all compute units have one
    crowd = ((0.0, max(shared - tile, 0.0)),)
    return of_rows(replace(MI355X, tile=tile, crowd=crowd), config, rows)


def on_b200(config: MlaDecodeConfig, ctas: int) -> Costs:
    """Predicted, of items that a block takes, or a CTA pair. The row blocks of rows that share keys
    run side by side, so that HBM gives each key once."""
    form = "fp8" if config.compute == "fp8" else "rope-aware" if config.rope_aware else "bf16"
    tile, rows = B200_CLOCKS[form][ctas - 1] / B200_MHZ / B200_REACHED, ctas * BLOCK_ROWS
    readers = B200_SMS / ctas / -(-item_rows(config) // rows)  # where all SMs have an item
    shared = TILE * _row_bytes(config) * readers / B200_HBM
    crowd = ((0.0, max(shared - tile, 0.0)),)
    return of_rows(replace(B200, tile=tile, crowd=crowd), config, rows)


def _row_bytes(config: MlaDecodeConfig) -> int:
    return config.cache_columns * ELEMENT_TYPES[config.cache_element].itemsize
