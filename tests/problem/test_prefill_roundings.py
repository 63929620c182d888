"""What manifests of prefill kernels state that they round is what their oracle rounds."""

import numpy as np
import pytest

from mlagen.app.build import written_schedule
from mlagen.attention.prefill.arithmetic import arithmetic_of
from mlagen.problem.formats import ELEMENT_TYPES

FIELDS = {"mha_prefill_v2": {"num_heads": 8, "num_kv_heads": 2},
          "mla_prefill_v2": {"num_heads": 16, "num_kv_heads": 1}}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("kernel", FIELDS)
def test_it_is_what_the_oracle_rounds(kernel, dtype):
    problem = written_schedule(kernel, {**FIELDS[kernel], "dtype": dtype}, {}).schedule.problem
    stated = {one.name: one.to for one in problem.roundings(None)}
    arithmetic = arithmetic_of(dtype)
    weights = np.linspace(0.05, 1, 4001)
    as_stated = weights.astype(np.float32).astype(ELEMENT_TYPES[stated["P"]])
    assert (arithmetic.round_p(weights) == as_stated.astype(np.float64)).mean() > 0.999
    q, _ = arithmetic.scaled(np.full((1, 1), 1.0, np.float32), 0.1)
    assert ("Q" in stated) == (q[0, 0] != 1.0)
