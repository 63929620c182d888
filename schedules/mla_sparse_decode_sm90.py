"""Top-k sparse MLA decode on Hopper, over rows that the list of each new token names.

A block has a token's heads, 1 to 32, and a split of its keys: those of a first cache, then those of
a second one. The schedule is that of `schedules/shared/keys_as_rows.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.sm_90a.operations import decode_by_keys, row_form
from mlagen.schedules.shared.keys_as_rows import keys_as_rows


@schedule(problem=MlaSparseDecodeConfig, target="sm_90a")
def mla_sparse_decode_sm90(k, s):
    keys_as_rows(k, s, row_form(k), decode_by_keys)
