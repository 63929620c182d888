"""The GEMM example's oracles: honest sums pass, small defects do not."""

from __future__ import annotations

import numpy as np
import pytest
from gemm.oracles import exact, rounded
from gemm.problem import GemmConfig
from gemm.verification import DATA, gemm_inputs

from mlagen.problem.expected import compare

CONFIG = GemmConfig(output_dtype="fp32")


def judged(inputs, c):
    """Whether C passes, by oracle."""
    return [compare(oracle(inputs), c[None, :, None]) for oracle in (exact, rounded)]


def product(inputs, columns=slice(None)):
    return inputs.a[:, columns].astype(np.float64) @ inputs.b[:, columns].astype(np.float64).T


def sequential(inputs, step):
    """fp32 sums, `step` terms of K at a time, each group exact."""
    c = np.zeros((inputs.a.shape[0], inputs.b.shape[0]), np.float32)
    for first in range(0, inputs.a.shape[1], step):
        c = (c + product(inputs, slice(first, first + step))).astype(np.float32)
    return c


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("k", [8, 72, 1000])
def test_honest_sums_pass(data, k):
    inputs = gemm_inputs(CONFIG, m=37, n=53, k=k, data=data, seed=k)
    for step in (1, 4, 8, 16):  # every term on its own, up to whole instructions
        for comparison in judged(inputs, sequential(inputs, step)):
            assert comparison.passed, (step, comparison.oracle, comparison.max_ratio)
    for c in (product(inputs).astype(np.float32), product(inputs).astype(inputs.a.dtype)):
        assert all(comparison.passed for comparison in judged(inputs, c))


def test_the_bound_of_the_rounding_oracle_is_the_smaller():
    inputs = gemm_inputs(CONFIG, m=64, n=64, k=1024, data="randn")
    assert np.median(rounded(inputs).bounds) < np.median(exact(inputs).bounds) / 8


@pytest.mark.parametrize("data", DATA)
def test_small_defects_fail(data):
    inputs = gemm_inputs(CONFIG, m=48, n=64, k=200, data=data)
    right = product(inputs)
    for name, wrong in (
        ("last 8 columns of K dropped", product(inputs, slice(0, 192))),
        ("a tile twice", right + product(inputs, slice(64, 128))),
        ("one term dropped", product(inputs, np.delete(np.arange(200), 71))),
        ("two rows swapped", right[[1, 0, *range(2, 48)]]),
        ("sums kept in bf16", right.astype(inputs.a.dtype).astype(np.float64)),
    ):
        for comparison in judged(inputs, wrong.astype(np.float32)):
            assert not comparison.passed, (name, comparison.oracle)


def test_nan_fails():
    inputs = gemm_inputs(CONFIG, m=16, n=16, k=16)
    c = product(inputs).astype(np.float32)
    c[3, 5] = np.nan
    for comparison in judged(inputs, c):
        assert (comparison.passed, comparison.nans, comparison.failures) == (False, 1, 1)
        assert (comparison.worst.row, comparison.worst.depth) == (3, 5)
