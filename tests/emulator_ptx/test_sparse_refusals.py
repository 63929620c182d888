"""What the sparse kernels do not serve is refused when they are built."""

import pytest

from mlagen.codegen import build
from mlagen.errors import UnsupportedError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig


@pytest.mark.parametrize(
    ("name", "problem", "knobs", "message"),
    [
        ("decode", MlaSparseDecodeConfig(64, rows="v32", dtype="fp8_e4m3"), {}, "dtype=bf16"),
        ("prefill", MlaSparsePrefillConfig(64, dtype="fp8_e4m3"), {}, "dtype=bf16"),
        ("prefill", MlaSparsePrefillConfig(8, dtype="fp8_e4m3"), {}, "dtype=bf16"),
        ("decode", MlaSparseDecodeConfig(8, dtype="fp8_e4m3"), {}, "dtype=bf16"),
    ],
)
def test_what_is_not_served_is_told(name, problem, knobs, message):
    with pytest.raises(UnsupportedError) as told:
        build(f"mla_sparse_{name}_sm90", problem, knobs=knobs)
    assert message in (told.value.hint or "")
