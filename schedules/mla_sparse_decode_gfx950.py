"""Top-k sparse MLA decode on gfx950, over rows that the list of each new token names.

A workgroup has up to 64 heads of a token and a part of its keys: those of a first cache, then those
of a second one. The schedule is that of `schedules/shared/listed_rows.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.schedules.shared.listed_rows import listed_rows


@schedule(problem=MlaSparseDecodeConfig, target="gfx950")
def mla_sparse_decode_gfx950(k, s):
    # Positions of keys take the registers of two fragments.
    listed_rows(k, s, (4, 2) if k.causal else (6, 4, 2))
