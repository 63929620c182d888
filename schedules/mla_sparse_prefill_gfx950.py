"""Top-k sparse MLA prefill on gfx950, over rows that each query's list names.

A workgroup has up to 64 heads of a query, 16 a wave, or up to 128, 32 a wave. The tables are those
of MLA decode, serial with 16 heads a wave and overlapped with 32; rows of e4m3 become bf16 on their
way to LDS.
"""

from dataclasses import replace

from mlagen.attention.latent.gfx950.bf16 import Bf16
from mlagen.attention.latent.gfx950.output import LatentOutput, first_columns
from mlagen.attention.latent.gfx950.parts import Parts
from mlagen.attention.latent.gfx950.products import Bf16Products
from mlagen.attention.latent.gfx950.shape import ROWS_16, ROWS_32
from mlagen.attention.latent.gfx950.softmax import LazyRescale, PerTile
from mlagen.dsl import schedule
from mlagen.families.mla_sparse.gfx950.dequantized import Dequantized
from mlagen.families.mla_sparse.gfx950.form import rows_of
from mlagen.families.mla_sparse.gfx950.listed import Listed
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.tables.latent_overlapped import latent_overlapped
from mlagen.schedules.tables.latent_serial import latent_serial

SERIAL = Parts(
    ROWS_16, Listed, Bf16, Bf16Products, PerTile, LatentOutput, slots=(4, 2), bands=(6, 4, 2)
)
OVERLAPPED = Parts(
    ROWS_32, Listed, Bf16, Bf16Products, LazyRescale, first_columns(384), (4,), (6, 5, 4)
)
DEQUANTIZED = replace(SERIAL, storage=Dequantized, slots=(2,), bands=(4, 3, 2))


@schedule(problem=MlaSparsePrefillConfig, target="gfx950")
def mla_sparse_prefill_gfx950(k, s):
    wide = rows_of(k, s) == ROWS_32.rows
    if k.rows != "bf16":
        latent_serial(k, s, DEQUANTIZED)
    elif wide:
        latent_overlapped(k, s, OVERLAPPED)
    else:
        latent_serial(k, s, SERIAL)
