"""Top-k sparse MLA prefill on gfx950, over rows that each query's list names.

A workgroup has up to 64 heads of a query (`schedules/shared/listed_rows.py`), or more of them, up
to 128 (`schedules/shared/wide_listed_rows.py`).
"""

from mlagen.attention.latent.gfx950.shape import ROWS_32
from mlagen.dsl import schedule
from mlagen.families.mla_sparse.gfx950.form import rows_of
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.schedules.shared.fed_rows import fed_rows
from mlagen.schedules.shared.listed_rows import listed_rows
from mlagen.schedules.shared.wide_listed_rows import wide_listed_rows


@schedule(problem=MlaSparsePrefillConfig, target="gfx950")
def mla_sparse_prefill_gfx950(k, s):
    rows = rows_of(k, s)
    if k.rows != "bf16":
        fed_rows(k, s)
    elif rows == ROWS_32.rows:
        wide_listed_rows(k, s)
    else:
        listed_rows(k, s, (6, 4, 2))
