"""MLA decode on numpy arrays: the call that a GPU's tensors take, both kernels emulated."""

import ml_dtypes

import mlagen
from mlagen.attention.latent.order import KEYS_AS_ROWS
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare


def test_split_work_is_merged_as_on_a_gpu():
    inputs = mla_decode_inputs(MlaDecodeConfig(16), lengths=(3, 130, 0), data="realistic")
    kernel = mlagen.build("mla_decode_sm90", num_heads=16)
    plan = kernel.plan((3, 130, 0), device="cpu", split_keys=64)
    out, lse = kernel(**inputs.tensors, **inputs.scales, plan=plan)
    assert out.dtype == ml_dtypes.bfloat16 and lse.shape == (3, 16, 1)
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=plan.splits, order=KEYS_AS_ROWS)
        assert compare(expected.output, out).passed
        assert compare_lse(expected.lse, lse).passed
