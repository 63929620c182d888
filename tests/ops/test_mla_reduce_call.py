"""The reduce kernel as a function: what it returns and what it refuses."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from reduce_cases import grouped

import mlagen
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.split_merge.prefill_exact import exact
from mlagen.families.split_merge.prefill_kernel import check_extents
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.ops import MlaReduceKernel
from mlagen.problem.expected import compare

CONFIG = MlaReduceConfig(2)
INPUTS = grouped(CONFIG, [2, 3], [5, 9])
ARRAYS = ("partial_o", "partial_lse", "reduce_indptr", "reduce_final_map", "reduce_partial_map")


@pytest.fixture(scope="module")
def kernel():
    return mlagen.build("mla_prefill_reduce", num_heads=2)


def arrays(**changed):
    return [changed.get(name, getattr(INPUTS, name)) for name in ARRAYS]


def test_build_returns_a_kernel_that_takes_arrays(kernel):
    assert isinstance(kernel, MlaReduceKernel)
    assert "num_heads=2" in repr(kernel)
    out = kernel(*arrays(), rows=INPUTS.rows)
    assert out.shape == (INPUTS.rows, 2, 128) and out.dtype == ml_dtypes.bfloat16
    assert compare(exact(INPUTS).output, out[None]).passed


def test_nothing_to_merge_launches_nothing(kernel):
    nothing = [np.zeros(1, np.int32), np.zeros((0, 2), np.int32), np.zeros(0, np.int32)]
    out = kernel(INPUTS.partial_o, INPUTS.partial_lse, *nothing, rows=4)
    assert out.shape == (4, 2, 128) and np.isnan(out.astype(np.float32)).all()
    given = replace(INPUTS, **dict(zip(ARRAYS[2:], nothing, strict=True)))
    assert kernel.run(given).report is None


@pytest.mark.parametrize(
    ("changed", "options", "said"),
    [
        ({"partial_o": np.asfortranarray(INPUTS.partial_o)}, {}, "partial_o is not C-contiguous"),
        ({"partial_lse": INPUTS.partial_lse.tolist()}, {}, "partial_lse is a list"),
        ({}, {"lse": np.zeros((INPUTS.rows, 2), np.float32)}, "the kernel does not write it"),
        ({}, {"out": np.zeros((INPUTS.rows, 2, 128), np.float32)}, "out has dtype float32"),
        ({}, {"out": np.zeros((3, 2, 128), ml_dtypes.bfloat16)}, "O has 3 rows"),
        ({}, {"out": np.zeros((40, 2, 128), ml_dtypes.bfloat16), "rows": 40}, "both given"),
        ({}, {"rows": 10}, "O has 10 rows"),
    ],
)
def test_refused_calls(kernel, changed, options, said):
    with pytest.raises(ConfigError) as error:
        kernel(*arrays(**changed), **options)
    assert said in str(error.value)


def test_outputs_must_be_writable_and_apart(kernel):
    out = np.zeros((INPUTS.rows, 2, 128), ml_dtypes.bfloat16)
    out.flags.writeable = False
    with pytest.raises(ConfigError, match="out is read-only"):
        kernel(*arrays(), out=out)
    raw = INPUTS.partial_o.copy()
    over = raw.view(ml_dtypes.bfloat16).reshape(-1, 2, 128)[: INPUTS.rows]
    with pytest.raises(ConfigError, match="out overlaps partial_o"):
        kernel(*arrays(partial_o=raw), out=over)


def test_inputs_and_artifacts_of_other_problems_are_refused(kernel):
    with pytest.raises(ConfigError, match="the kernel's is"):
        kernel.run(replace(INPUTS, config=MlaReduceConfig(2, lse=True)))
    with pytest.raises(ConfigError, match="not an MlaReduceConfig"):
        MlaReduceKernel(build("mha_prefill_v2", MhaConfigV2(1, 1)))


def test_extents():
    """Offsets inside a group are 32 bits, a grid has 65535 groups at most."""
    check_extents(INPUTS, 2**23 - 1)
    with pytest.raises(ConfigError, match="offsets inside a group are 32") as error:
        check_extents(INPUTS, 2**23)
    assert "at most 4194303 rows a group" in error.value.hint
    count = 65536
    rows = np.arange(count, dtype=np.int32)
    many = replace(
        INPUTS,
        reduce_indptr=np.zeros(count + 1, np.int32),
        reduce_final_map=np.stack([rows, rows + 1], axis=1),
        reduce_partial_map=np.zeros(0, np.int32),
        rows=count,
    )
    with pytest.raises(ConfigError, match="65536 groups"):
        check_extents(many, 2)
