"""Oracles of kernels that multiply sums of columns by their scales, held against a numpy model of
one, and its faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mla_decode_simulation import wgmma
from v32_calls import BF16, F32, call, judged, model, with_scales

from mlagen.attention.latent.order import keys_in_registers

ORDER = keys_in_registers(576, 128)
STEPS = [[16 * q + 4 * j + n for q in range(4) for n in range(4)] for j in range(4)]


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


@pytest.mark.parametrize("data", ["randn", "realistic", "late_max", "peaked"])
def test_an_honest_kernel_is_within_both_bounds(data):
    inputs = call(data)
    for found in judged(inputs, model(attention, inputs), ORDER):
        assert all(one.passed for one in found.values()), found


def test_scales_of_all_sizes_and_small_queries():
    """Growing from row to row by more than f16 holds; numbers of Q that f16 does not hold."""
    rng = np.random.default_rng(5)
    inputs = with_scales(call(), lambda own: own * np.exp2(rng.integers(-40, 1, own.shape)))
    q = inputs.q.astype(F32)
    q[:, :, ::7] *= F32(2.0**-34)
    inputs = replace(inputs, q=q.astype(BF16))
    for found in judged(inputs, model(attention, inputs), ORDER):
        assert all(one.passed for one in found.values()), found


@pytest.mark.parametrize(
    "fault, output",
    [("numbers rounded", "o"), ("P of bf16", "o"), ("growth left out", "o"),
     ("scale of another group", "o"), ("scale off by 1 %", "o"), ("scale off by 1 %", "lse")],
)  # fmt: skip
def test_each_bound_is_sharp(fault, output):
    rng = np.random.default_rng(6)
    inputs = with_scales(call(), lambda own: own * np.exp2(rng.integers(-3, 1, own.shape)))
    outputs = model(attention, inputs, fault)
    if fault == "scale off by 1 %":
        off = np.array([1, 1, F32(1.01), 1], F32)
        outputs = model(attention, with_scales(inputs, lambda own: own * off))
    for found in judged(inputs, outputs, ORDER)[fault == "P of bf16" :]:
        assert found[output].max_ratio > 2, found[output]
