"""MLA decode on gfx950 in the absorbed form 576 / 512: four waves, 16 or 32 query rows each.

A workgroup has up to 64 query rows of one sequence (heads, or heads of several new tokens), or up
to 128, and all of its keys or one split of them. Tiles of keys lie in LDS once. Each wave has Q and
O of its rows in registers and goes through all keys.

With 16 rows a wave and a cache of bf16 the table is that of `tables/latent_serial.py`:

| cluster | matrix | vector / transcendental      | memory                                     |
|---------|--------|------------------------------|--------------------------------------------|
| tile    |        |                              | pages of i + ahead + 2; DMA of i + ahead   |
|         | QK(i)  |                              | K(i), fragment by fragment                 |
|         |        | mask(i), maximum, rescale O, | first fragments of V(i)                    |
|         |        | exp2, sum, P(i)              |                                            |
|         | PV(i)  |                              | the rest of V(i)                           |

LDS has 147456 of 163840 bytes: four tiles of 32 keys x 1152 bytes, the DMA three ahead. Of 256
vector registers a lane O has 128, Q 72, K and V 24 in turn, S 8.

`VARIANTS` has the forms. With 32 rows, or products of e4m3, the table is that of
`tables/latent_overlapped.py`, in which the softmax of a tile stands under the products of the next.
"""

from functools import partial

from mlagen.attention.latent.gfx950.bf16 import Bf16Rows
from mlagen.attention.latent.gfx950.output import LatentOutput, first_columns
from mlagen.attention.latent.gfx950.parts import LatentForm
from mlagen.attention.latent.gfx950.products import Bf16Products, E4m3Products
from mlagen.attention.latent.gfx950.quantized import Quantized
from mlagen.attention.latent.gfx950.shape import ROWS_16, ROWS_32
from mlagen.attention.latent.gfx950.softmax import LazyRescale, PerTile
from mlagen.attention.latent.gfx950.variants import latent_form
from mlagen.attention.latent.order import (
    BY_WAVES,
    BY_WAVES_64,
    BY_WIDE_WAVES,
    BY_WIDE_WAVES_64,
    E4M3_BY_WAVES,
)
from mlagen.attention.latent.problem import item_rows
from mlagen.dsl import schedule
from mlagen.families.mla_decode.costs import on_mi355x
from mlagen.families.mla_decode.gfx950.paged import Paged
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.schedules.tables.latent_overlapped import latent_overlapped
from mlagen.schedules.tables.latent_serial import latent_serial

BF16 = LatentForm(
    ROWS_16, Paged, Bf16Rows, Bf16Products, PerTile, LatentOutput, slots=(4, 2), bands=(6, 4, 2)
)
BF16_ROWS_32 = LatentForm(
    ROWS_32, Paged, Bf16Rows, Bf16Products, LazyRescale, first_columns(384), (4,), bands=(6, 5, 4)
)
KV_FP8_ROWS_32 = LatentForm(
    ROWS_32, Paged, Quantized, Bf16Products, LazyRescale, first_columns(320), (3, 2), bands=(8, 4)
)
QKV_FP8 = LatentForm(
    ROWS_16, Paged, Quantized, E4m3Products, LazyRescale, LatentOutput, (4,), bands=(16, 8)
)
QKV_FP8_ROWS_32 = LatentForm(
    ROWS_32, Paged, Quantized, E4m3Products, LazyRescale, first_columns(320), (4,), bands=(16, 8)
)


def kv_fp8(k):
    """Two tiles of e4m3 leave room for a second workgroup; with three, code that converts most
    exceeds what a branch reaches. Queries that are multiplied in bf16 take twice the registers."""
    bf16 = k.dtype == "bf16"
    slots = ((2,) if bf16 else (3, 2)) if k.rope_aware else (2, 3)
    bands = (4, 2) if bf16 else (8, 4)
    return LatentForm(ROWS_16, Paged, Quantized, Bf16Products, PerTile, LatentOutput, slots, bands)


def few(k, knobs):
    """Whether waves of 16 rows let one workgroup have all that share keys."""
    return item_rows(k) <= 64


def plain(k):
    return k.cache_dtype == "bf16"


def converted(k):
    return not plain(k) and k.compute != "fp8"


def fp8(k):
    return k.compute == "fp8"


form = partial(latent_form, costs=on_mi355x)
VARIANTS = (
    form("bf16", "bf16 rows, 16 query rows a wave", latent_serial, BF16, BY_WAVES,
         serves=plain, usual=few),
    form("bf16_rows_32", "bf16 rows, 32 query rows a wave", latent_overlapped, BF16_ROWS_32,
         BY_WIDE_WAVES, serves=plain),
    form("kv_fp8", "e4m3 and rope-aware rows, converted on the way from LDS, 16 query rows a wave",
         latent_serial, kv_fp8, BY_WAVES_64, serves=converted, usual=few),
    form("kv_fp8_rows_32", "the same, 32 query rows a wave", latent_serial, KV_FP8_ROWS_32,
         BY_WIDE_WAVES_64, serves=converted),
    form("qkv_fp8", "products of e4m3, 16 query rows a wave", latent_overlapped, QKV_FP8,
         E4M3_BY_WAVES, serves=fp8, usual=few),
    form("qkv_fp8_rows_32", "products of e4m3, 32 query rows a wave", latent_overlapped,
         QKV_FP8_ROWS_32, E4M3_BY_WAVES, serves=fp8),
)  # fmt: skip


@schedule(problem=MlaDecodeConfig, target="gfx950", variants=VARIANTS)
def mla_decode_gfx950(k, s, variant):
    variant.table(k, s)
