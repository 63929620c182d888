"""Top-k sparse MLA decode on Blackwell, over rows that the list of each new token names.

A block has up to 64 heads of a token and a split of its keys, those of a first cache, then those of
a second one, with the schedule of `schedules/shared/in_tensor_memory.py`. With more heads two
blocks are a CTA pair, whose schedule is `schedules/shared/on_a_cta_pair.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.sm_100a.fed import FedSparse
from mlagen.families.mla_sparse.sm_100a.operations import Sparse
from mlagen.schedules.shared.in_tensor_memory import in_tensor_memory
from mlagen.schedules.shared.on_a_cta_pair import on_a_cta_pair


@schedule(problem=MlaSparseDecodeConfig, target="sm_100a")
def mla_sparse_decode_sm100(k, s):
    ctas = s.choice("ctas", *((2, 1) if k.num_heads > 64 else (1,)),
                    comment="2: a CTA pair multiplies together, 64 heads in each")  # fmt: skip
    operations = Sparse if k.rows == "bf16" or k.compute == "fp8" else FedSparse
    if ctas == 2:
        on_a_cta_pair(k, s, operations)
    else:
        in_tensor_memory(k, s, operations)
