"""Oracles of kernels whose rows are multiples of a key's grain, held against a numpy model of one,
keys as rows, and its faults."""

from __future__ import annotations

import numpy as np
import pytest
from mla_decode_simulation import wgmma
from v32_calls import BF16, F32, call, judged, model, with_scales

from mlagen.attention.latent.order import KEYS_OF_GRAINS

HALF = np.float16


def power_below(numbers):
    return np.exp2(np.floor(np.log2(np.where(numbers > 0, numbers, 1.0))))


def multiples(numbers, scales, grains):
    """f16 numbers of rows [keys, 512] over grains: fused, of 7 bits of a ratio and its rest."""
    ratio = scales / grains[:, None]
    fraction, exponent = np.frexp(ratio)
    high = np.ldexp(np.trunc(fraction * 2.0**7), exponent - 7)
    high, low = (np.repeat(x.astype(HALF).astype(float), 128, axis=1) for x in (high, ratio - high))
    first = (numbers * high).astype(HALF).astype(float)
    return (numbers * low + first).astype(HALF).astype(F32)


def attention(q, keys, inputs, fault):
    numbers, scales, rope, seen = keys
    heads, c = len(q), F32(inputs.score_scale * np.log2(np.e))
    power = np.exp2(15 - np.floor(np.log2(np.abs(q).max(axis=1, keepdims=True))))
    lifted = (q * power).astype(F32)
    halves = lifted.astype(HALF).astype(F32)
    c = (c / power).astype(F32)[:, 0]
    top, total = np.full(heads, -np.inf, F32), np.zeros(heads, F32)
    acc, largest = np.zeros((heads, 512), F32), 0.0
    rng = np.random.default_rng(3)
    for first in range(0, len(seen), 64):
        part = slice(first, first + 64)
        count = len(seen[part])
        k, by, r = (np.zeros((64, width), F32) for width in (512, 4, 64))
        k[:count], by[:count], r[:count] = numbers[part], scales[part], rope[part]
        there = np.zeros(64, bool)
        there[:count] = seen[part]
        grains = np.maximum(power_below(by.max(axis=1)) * (by.max(axis=1) > 0), 2.0**-32) / 64
        if fault == "numbers of bf16":
            k = (k * np.repeat(by, 128, axis=1)).astype(BF16).astype(F32) / grains[:, None]
        else:
            k = multiples(k.astype(float), by.astype(float), grains)
        r = (r / grains[:, None]).astype(BF16).astype(F32)
        s = np.zeros((heads, 64), F32)
        for at in range(0, 512, 16):
            s = wgmma(s, halves[:, at : at + 16], k[:, at : at + 16].T)
        for at in range(0, 64, 16):
            s = wgmma(s, lifted[:, 512 + at : 528 + at], r[:, at : at + 16].T)
        s = (s * grains).astype(F32)
        s[:, ~there] = -np.inf
        # Faults concern two keys of the second tile: the one that weighs most, and another grain's.
        lost = int(s.max(axis=0).argmax())
        apart = np.flatnonzero(there & (grains != grains[lost]))
        other = int(apart[0]) if first == 64 and len(apart) else lost
        swapped = np.arange(64)
        swapped[[lost, other]] = other, lost
        if fault == "a key left out" and first == 64:
            s[:, lost] = -np.inf
        own = grains[swapped] if fault == "another key's grain" else grains
        new = np.maximum(top, (s.max(axis=1) * c).astype(F32))
        base = np.where(np.isneginf(new), F32(0), new)
        alpha = np.exp2(np.where(np.isneginf(new), F32(-np.inf), top - base).astype(F32))
        top = new
        with np.errstate(invalid="ignore"):
            x = (s.astype(float) * c[:, None].astype(float) - base[:, None]).astype(F32)
        p = np.exp2(x)
        p = (p * (1 + rng.uniform(-(2.0**-22), 2.0**-22, p.shape))).astype(F32)
        total = (total * alpha + p.sum(axis=1, dtype=F32)).astype(F32)
        before, largest = largest, max(largest, grains.max())
        grown = 1.0 if fault == "growth left out" else before / largest
        weights = p * (own / largest).astype(F32)
        if fault == "two keys exchanged":
            weights = weights[:, swapped]
        weights = weights.astype(BF16 if fault == "P of bf16" else HALF).astype(F32)
        acc = (acc * (alpha * F32(grown))[:, None]).astype(F32)
        for at in range(0, 64, 16):
            acc = wgmma(acc, weights[:, at : at + 16], k[at : at + 16])
    with np.errstate(invalid="ignore", divide="ignore"):
        o = np.where(total[:, None] > 0, acc * F32(largest) / total[:, None], 0)
        lse = ((top + np.log2(total)) * np.log(2)).astype(F32)
    return o.astype(BF16), lse, (top * np.log(2)).astype(F32)


def drawn():
    """Scales that differ by up to 16 from key to key and group to group; those of the first query's
    last two tiles are larger still."""
    rng, inputs = np.random.default_rng(6), call()
    late = inputs.indices[0, 192:300]
    pages, size = inputs.cache.shape[:2]
    more = np.ones(pages * size, F32)
    more[late[(late >= 0) & (late < pages * size)]] = 2
    more = more.reshape(pages, size, 1)
    return with_scales(
        inputs,
        lambda own: (
            own * (more * np.exp2(rng.uniform(-3, 1, own.shape))).astype(F32).reshape(own.shape)
        ),
    )


@pytest.mark.parametrize("data", ["randn", "realistic", "late_max", "peaked"])
def test_an_honest_kernel_is_within_both_bounds(data):
    inputs = call(data)
    for found in judged(inputs, model(attention, inputs), KEYS_OF_GRAINS):
        assert all(one.passed for one in found.values()), found


def test_scales_of_many_sizes():
    rng = np.random.default_rng(5)
    inputs = with_scales(call(), lambda own: own * np.exp2(rng.integers(-40, 1, own.shape)))
    for found in judged(inputs, model(attention, inputs), KEYS_OF_GRAINS):
        assert all(one.passed for one in found.values()), found


@pytest.mark.parametrize(
    "fault, output",
    [("numbers of bf16", "o"), ("P of bf16", "o"), ("growth left out", "o"),
     ("another key's grain", "o"), ("two keys exchanged", "o"),
     ("a key left out", "o"), ("a key left out", "lse"),
     ("scale off by 1 %", "o"), ("scale off by 1 %", "lse")],
)  # fmt: skip
def test_each_bound_is_sharp(fault, output):
    """By more than twofold."""
    inputs = drawn()
    outputs = model(attention, inputs, fault)
    if fault == "scale off by 1 %":
        off = np.array([1, 1, F32(1.01), 1], F32)
        outputs = model(attention, with_scales(inputs, lambda own: own * off))
    for found in judged(inputs, outputs, KEYS_OF_GRAINS):
        assert found[output].max_ratio > 2, found[output]
