"""Top-k sparse MLA prefill on Blackwell, over rows that each query's list names.

A block has up to 64 heads of a query, with the schedule of `schedules/shared/in_tensor_memory.py`.
With more heads two blocks are a CTA pair, whose schedule is `schedules/shared/on_a_cta_pair.py`.
"""

from mlagen.dsl import schedule
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_100a.fed import FedSparse
from mlagen.families.mla_sparse.sm_100a.operations import Sparse
from mlagen.schedules.shared.in_tensor_memory import in_tensor_memory
from mlagen.schedules.shared.on_a_cta_pair import on_a_cta_pair


@schedule(problem=MlaSparsePrefillConfig, target="sm_100a")
def mla_sparse_prefill_sm100(k, s):
    ctas = s.choice("ctas", *((2, 1) if k.num_heads > 64 else (1,)),
                    comment="2: a CTA pair multiplies together, 64 heads in each")  # fmt: skip
    operations = Sparse if k.rows == "bf16" or k.compute == "fp8" else FedSparse
    if ctas == 2:
        on_a_cta_pair(k, s, operations)
    else:
        in_tensor_memory(k, s, operations)
