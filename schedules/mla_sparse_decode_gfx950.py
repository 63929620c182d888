"""Top-k sparse MLA decode on gfx950, over rows that the list of each new token names.

A workgroup has up to 64 heads of a token (`schedules/shared/listed_rows.py`), or more of them, up
to 128 (`schedules/shared/wide_listed_rows.py`), and a part of its keys: those of a first cache,
then those of a second one.
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.gfx950.form import rows_of
from mlagen.schedules.shared.fed_rows import fed_rows
from mlagen.schedules.shared.listed_rows import listed_rows
from mlagen.schedules.shared.wide_listed_rows import wide_listed_rows


@schedule(problem=MlaSparseDecodeConfig, target="gfx950")
def mla_sparse_decode_gfx950(k, s):
    rows = rows_of(k, s)
    if k.rows != "bf16":
        fed_rows(k, s)
    elif rows == ROWS_32.rows:
        wide_listed_rows(k, s)
    else:
        # Positions of keys take the registers of two fragments.
        listed_rows(k, s, (4, 2) if k.causal else (6, 4, 2))
