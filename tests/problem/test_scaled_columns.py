"""Oracles of kernels that multiply sums of columns by their scales, held against a numpy model of
one, and its faults."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from mla_decode_simulation import wgmma

from mlagen.attention.latent.order import keys_in_registers
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded

F32, BF16, E4M3 = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
ORDER = keys_in_registers(576, 128)
STEPS = [[16 * q + 4 * j + n for q in range(4) for n in range(4)] for j in range(4)]


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


def model(inputs, fault=None):
    """O, LSE and the largest scores as the kernel stores them."""
    shape = inputs.q.shape[:2]
    o, lse, tops = np.empty((*shape, 512), BF16), np.empty(shape, F32), np.empty(shape, F32)
    for row in range(shape[0]):
        found = attention(inputs.q[row].astype(F32), rows_of(inputs, row), inputs, fault)
        o[row], lse[row], tops[row] = found
    return {"o": o, "lse": lse, "max_logits": tops}


def attention(q, keys, inputs, fault):
    numbers, scales, rope, seen = keys
    heads, c = len(q), F32(inputs.score_scale * np.log2(np.e))
    power = np.exp2(15 - np.floor(np.log2(np.abs(q).max(axis=1, keepdims=True))))
    lifted = (q * power).astype(F32)
    halves = lifted.astype(np.float16).astype(F32)
    c = (c / power).astype(F32)[:, 0]
    top, total = np.full(heads, -np.inf, F32), np.zeros(heads, F32)
    acc = np.zeros((4, heads, 128), F32)
    largest = np.full(4, 2.0**-100)
    rng = np.random.default_rng(3)
    for first in range(0, len(seen), 64):
        part = slice(first, first + 64)
        k, by, there = (np.zeros((64, width), F32) for width in (512, 4, 1))
        k[: len(seen[part])], by[: len(seen[part])] = numbers[part], scales[part]
        there[: len(seen[part]), 0] = seen[part]
        r = np.zeros((64, 64), F32)
        r[: len(seen[part])] = rope[part]
        if fault == "numbers rounded":
            k = (k * np.repeat(by, 128, axis=1)).astype(BF16).astype(F32)
            k = k / np.where(by > 0, by, 1).repeat(128, axis=1)
        s = np.zeros((heads, 64), F32)
        for step in STEPS:
            s = wgmma(s, lifted[:, 512:][:, step], r[:, step].T)
        for group in range(4):
            sums = np.zeros((heads, 64), F32)
            for box in (2 * group, 2 * group + 1):
                for step in STEPS:
                    at = [64 * box + column for column in step]
                    sums = wgmma(sums, halves[:, at], k[:, at].T)
            s = (s.astype(float) + sums.astype(float) * by[:, group]).astype(F32)
        s[:, there[:, 0] == 0] = -np.inf
        new = np.maximum(top, (s.max(axis=1) * c).astype(F32))
        some = ~np.isneginf(new)
        base = np.where(some, new, F32(0))
        alpha = np.exp2(np.where(some, top - base, F32(-np.inf)).astype(F32))
        top = new
        with np.errstate(invalid="ignore"):
            x = (s.astype(float) * c[:, None].astype(float) - base[:, None]).astype(F32)
        p = np.exp2(x)
        p = (p * (1 + rng.uniform(-(2.0**-22), 2.0**-22, p.shape))).astype(F32)
        total = (total * alpha + p.sum(axis=1, dtype=F32)).astype(F32)
        for group in range(4):
            before = largest[group]
            most = float(by[:, group].max())
            if most > 0:
                largest[group] = max(before, 2.0 ** np.floor(np.log2(most)))
            lowered = 1.0 if fault == "growth left out" else before / largest[group]
            share = (by[:, group] * F32(2.0**14 / largest[group])).astype(F32)
            if fault == "scale of another group":
                share = (by[:, group ^ 1] * F32(2.0**14 / largest[group])).astype(F32)
            weights = (p * share).astype(F32)
            kind = BF16 if fault == "P of bf16" else np.float16
            weights = weights.astype(kind).astype(F32)
            acc[group] = (acc[group] * (alpha * F32(lowered))[:, None]).astype(F32)
            for step in range(0, 64, 16):
                v = k[step : step + 16, 128 * group : 128 * (group + 1)]
                acc[group] = wgmma(acc[group], weights[:, step : step + 16], v)
    o = acc * (largest * 2.0**-14)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        o = np.where(total[:, None] > 0, np.concatenate(list(o), axis=1) / total[:, None], 0)
        lse = ((top + np.log2(total)) * np.log(2)).astype(F32)
    return o.astype(BF16), lse, (top * np.log(2)).astype(F32)


def judged(inputs, outputs):
    return [compare_outputs(inputs, oracle(inputs, order=ORDER), outputs)
            for oracle in (exact, rounded)]  # fmt: skip


def with_scales(inputs, change):
    """The same with other scales in its rows."""
    cache = inputs.cache.copy()
    own = cache[..., 512:528].view(F32)
    own[...] = change(own)
    return replace(inputs, cache=cache)


@pytest.mark.parametrize("data", ["randn", "realistic", "late_max", "peaked"])
def test_an_honest_kernel_is_within_both_bounds(data):
    inputs = call(data)
    for found in judged(inputs, model(inputs)):
        assert all(one.passed for one in found.values()), found


def test_scales_of_all_sizes_and_small_queries():
    """Growing from row to row by more than f16 holds; numbers of Q that f16 does not hold."""
    rng = np.random.default_rng(5)
    inputs = with_scales(call(), lambda own: own * np.exp2(rng.integers(-40, 1, own.shape)))
    q = inputs.q.astype(F32)
    q[:, :, ::7] *= F32(2.0**-34)
    inputs = replace(inputs, q=q.astype(BF16))
    for found in judged(inputs, model(inputs)):
        assert all(one.passed for one in found.values()), found


@pytest.mark.parametrize(
    "fault, output",
    [("numbers rounded", "o"), ("P of bf16", "o"), ("growth left out", "o"),
     ("scale of another group", "o"), ("scale off by 1 %", "o"), ("scale off by 1 %", "lse")],
)  # fmt: skip
def test_each_bound_is_sharp(fault, output):
    rng = np.random.default_rng(6)
    inputs = with_scales(call(), lambda own: own * np.exp2(rng.integers(-3, 1, own.shape)))
    outputs = model(inputs, fault)
    if fault == "scale off by 1 %":
        off = np.array([1, 1, F32(1.01), 1], F32)
        outputs = model(with_scales(inputs, lambda own: own * off))
    for found in judged(inputs, outputs)[fault == "P of bf16" :]:
        assert found[output].max_ratio > 2, found[output]
