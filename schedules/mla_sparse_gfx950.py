"""Top-k sparse MLA on gfx950, over rows that each query's list names: decode and prefill.

A workgroup has up to 64 heads of a query, 16 a wave, or up to 128, 32 a wave. In decode it has a
part of the keys: those of a first cache, then those of a second one. The tables are those of MLA
decode, serial with 16 heads a wave and overlapped with 32; rows of e4m3 become bf16 on their way to
LDS. With 16 heads a wave and bf16 rows it is that of `tables/latent_serial.py`:

| cluster | matrix | vector / transcendental      | memory                                     |
|---------|--------|------------------------------|--------------------------------------------|
| tile    |        |                              | list of i + ahead + 2; of i + 2, for the   |
|         |        |                              | mask; DMA of the rows of i + ahead         |
|         | QK(i)  |                              | K(i), fragment by fragment                 |
|         |        | mask(i), maximum, rescale O, | first fragments of V(i)                    |
|         |        | exp2, sum, P(i)              |                                            |
|         | PV(i)  |                              | the rest of V(i)                           |

LDS has 147456 of 163840 bytes: four tiles of 32 keys x 1152 bytes, the DMA three ahead. Of 256
vector registers a lane O has 128, Q 72, K and V 24 in turn, S 8.
"""

from dataclasses import replace
from functools import partial

from mlagen.attention.latent.gfx950.bf16 import Bf16Rows
from mlagen.attention.latent.gfx950.output import LatentOutput, first_columns
from mlagen.attention.latent.gfx950.parts import LatentForm
from mlagen.attention.latent.gfx950.products import Bf16Products
from mlagen.attention.latent.gfx950.shape import ROWS_16, ROWS_32
from mlagen.attention.latent.gfx950.softmax import LazyRescale, PerTile
from mlagen.attention.latent.gfx950.variants import latent_form as form
from mlagen.attention.latent.order import BY_WAVES, BY_WIDE_WAVES
from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.gfx950.dequantized import Dequantized
from mlagen.families.mla_sparse.gfx950.listed import Listed
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.tables.latent_overlapped import latent_overlapped
from mlagen.schedules.tables.latent_serial import latent_serial

BF16 = LatentForm(
    ROWS_16, Listed, Bf16Rows, Bf16Products, PerTile, LatentOutput, slots=(4, 2), bands=(6, 4, 2)
)
BF16_ROWS_32 = LatentForm(
    ROWS_32, Listed, Bf16Rows, Bf16Products, LazyRescale, first_columns(384), (4,), bands=(6, 5, 4)
)
KV_FP8 = replace(BF16, storage=Dequantized, slots=(2,), bands=(4, 3, 2))


def bands_of(parts, *causal):
    """Positions of keys take the registers of reads on their way."""
    return partial(_by_positions, parts, causal)


def _by_positions(parts, causal, k):
    return replace(parts, bands=causal) if k.causal else parts


def plain(k):
    return k.rows == "bf16"


def quantized(k):
    return k.rows != "bf16"


VARIANTS = (
    form("bf16", "bf16 rows, 16 heads a wave", latent_serial, bands_of(BF16, 4, 2), BY_WAVES,
         serves=plain, usual=lambda k, knobs: k.num_heads <= 64),
    form("bf16_rows_32", "bf16 rows, 32 heads a wave", latent_overlapped, BF16_ROWS_32,
         BY_WIDE_WAVES, serves=plain),
    form("kv_fp8", "rows of e4m3 in all formats, converted before LDS, 16 heads a wave",
         latent_serial, bands_of(KV_FP8, 3, 2), BY_WAVES, serves=quantized),
)  # fmt: skip


@schedule(problem=MlaSparseDecodeConfig, target="gfx950", variants=VARIANTS)
def mla_sparse_decode_gfx950(k, s, variant):
    """Top-k sparse MLA decode on gfx950, over rows that the list of each new token names."""
    variant.table(k, s)


@schedule(problem=MlaSparsePrefillConfig, target="gfx950", variants=VARIANTS)
def mla_sparse_prefill_gfx950(k, s, variant):
    """Top-k sparse MLA prefill on gfx950, over rows that each query's list names."""
    variant.table(k, s)
