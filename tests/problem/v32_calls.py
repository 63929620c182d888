"""Calls over rows of v32 for numpy models of kernels, and oracles that judge what these return."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded

F32, BF16, E4M3 = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def call(data="randn", **more):
    config = MlaSparsePrefillConfig(num_heads=4, rows="v32")
    return mla_sparse_prefill_inputs(
        config, rows=2, topk=300, data=data, pattern="invalid", lengths=[300, 131], **more
    )


def rows_of(inputs, row):
    """Numbers [keys, 512], scales [keys, 4], rope [keys, 64] and which are keys."""
    count = int(inputs.topk_length[row])
    own = inputs.indices[row, :count]
    seen = (own >= 0) & (own < inputs.cache.shape[0] * inputs.cache.shape[1])
    numbers, scales = np.zeros((count, 512), F32), np.zeros((count, 4), F32)
    rope = np.zeros((count, 64), F32)
    for n in np.flatnonzero(seen):
        stored = np.ascontiguousarray(inputs.cache[divmod(int(own[n]), inputs.cache.shape[1])])
        numbers[n] = stored[:512].astype(F32)
        scales[n] = stored[512:528].view(F32)
        rope[n] = stored[528:].view(BF16).astype(F32)
    return numbers, scales, rope, seen


def model(attention, inputs, fault=None):
    """O, LSE and the largest scores as a kernel stores them; `attention` of one query, its keys
    and a fault."""
    shape = inputs.q.shape[:2]
    o, lse, tops = np.empty((*shape, 512), BF16), np.empty(shape, F32), np.empty(shape, F32)
    for row in range(shape[0]):
        found = attention(inputs.q[row].astype(F32), rows_of(inputs, row), inputs, fault)
        o[row], lse[row], tops[row] = found
    return {"o": o, "lse": lse, "max_logits": tops}


def judged(inputs, outputs, order):
    return [compare_outputs(inputs, oracle(inputs, order=order), outputs)
            for oracle in (exact, rounded)]  # fmt: skip


def with_scales(inputs, change):
    """The same with other scales in its rows."""
    cache = inputs.cache.copy()
    own = cache[..., 512:528].view(F32)
    own[...] = change(own)
    return replace(inputs, cache=cache)
