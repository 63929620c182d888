"""Calls of `mlagen.build` as type checkers see them: mypy reads this file, nothing runs it.

Each line that is wrong says the error that it must give; mypy refuses an error that does not come.
"""

from pathlib import Path
from typing import Any, assert_type

import mlagen
from mlagen.families.mla_decode.aiter_kernel import AiterDecodeKernel
from mlagen.launch import EmulatedLauncher
from mlagen.ops import (
    MhaConfigV2,
    MhaKernel,
    MlaDecodeKernel,
    MlaPrefillKernel,
    MlaReduceKernel,
    MlaSparseDecodeKernel,
    MlaSparsePrefillKernel,
)

decode = mlagen.build("mla_decode_sm90", num_heads=128, page_size=64)
assert_type(decode, MlaDecodeKernel)
assert_type(mlagen.build("mla_decode_sm100", num_heads=16, ctas=1), MlaDecodeKernel)
assert_type(mlagen.build("mla_decode_gfx950", num_heads=16, persistent=1), MlaDecodeKernel)
assert_type(
    mlagen.build("mla_decode_gfx950", num_heads=16, persistent=1, arguments="aiter"),
    AiterDecodeKernel,
)
assert_type(mlagen.build("mha_prefill_v2", num_heads=8, num_kv_heads=2), MhaKernel)
assert_type(mlagen.build("mla_prefill_v2", num_heads=8, num_kv_heads=8), MlaPrefillKernel)
assert_type(mlagen.build("mla_prefill_reduce", num_heads=8, lse=True), MlaReduceKernel)
for rows in ("bf16", "v32"):
    decoded = mlagen.build("mla_sparse_decode_sm90", num_heads=128, rows=rows, extra=True)
    assert_type(decoded, MlaSparseDecodeKernel)
    filled = mlagen.build("mla_sparse_prefill_sm100", num_heads=128, rows=rows)
    assert_type(filled, MlaSparsePrefillKernel)

# What stands beside fields.
mlagen.build("mla_decode_sm90", num_heads=16, knobs={"ahead": 1}, launcher=EmulatedLauncher())
mlagen.build("mla_decode_sm90", num_heads=16, shape={"batch": 64, "keys": 4096}, target="sm_90a")

# Files of one's own, configs, and fields that are known at run time only.
assert_type(mlagen.build(Path("mine.py"), absolute=True), Any)
assert_type(mlagen.build(MhaConfigV2(num_heads=8, num_kv_heads=2)), Any)
fields: dict[str, Any] = {"num_heads": 8}
assert_type(mlagen.build("mine.py", knobs={}, **fields), Any)

mlagen.build("mla_decode_sm90", num_head=16)  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads="16")  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads=16, box=2)  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads=16, target="gfx950")  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads=16, knobs=3)  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads=16, launcher=5)  # type: ignore[call-overload]
mlagen.build("mla_decode_sm90", num_heads=16, shape=7)  # type: ignore[call-overload]
decode.foo(3)  # type: ignore[attr-defined]
