"""Acceptance of mha_prefill_v2 at production shapes: the published rows A4 (bf16), A5 and A6.

Each row is judged by its published tolerance and by both oracles, which are far sharper. By default
with a quarter of the heads (their ratio kept) and two workgroups of every case; with
MLAGEN_ACCEPTANCE=1 with all heads and sixteen workgroups, some minutes.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest

from mlagen.codegen import build
from mlagen.launch import EmulatedLauncher
from mlagen.problem import MhaConfig, compare
from mlagen.testdata import mha_inputs
from mlagen.verify.mha import MhaTrial

FULL = "MLAGEN_ACCEPTANCE" in os.environ
HEADS = (32, 8) if FULL else (8, 2)
WORKGROUPS = 16 if FULL else 2

pytestmark = pytest.mark.acceptance


@lru_cache(maxsize=4)
def built(config):
    return build("mha_prefill_v2", config)


def accepted(config, absolute, relative, **shape):
    """Runs a sample of the workgroups; the outputs' rows, NaN elsewhere."""
    inputs = mha_inputs(config, **shape)
    trial = MhaTrial(inputs).sampled(WORKGROUPS, seed=0)
    outputs, report = trial.run(built(config), EmulatedLauncher(workgroups=trial.workgroups))
    assert not report.emulation.findings
    for oracle in trial.oracles():
        comparison = compare(oracle, outputs[oracle.output])
        assert comparison.passed, (oracle.oracle, comparison.worst)
        assert comparison.nans == 0
        if oracle.oracle == "exact":
            got = oracle.select(outputs["o"]).astype(np.float64)
            error = np.abs(got - oracle.values)
            assert (error <= absolute + relative * np.abs(oracle.values)).all()
    return trial, outputs


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_a4_bf16(mask):
    """B1 S4096 H2 D128, randn: |err| <= 3e-2 + 3e-2 |ref|."""
    accepted(MhaConfig(2, 2, mask=mask), 3e-2, 3e-2, seq_len=4096, data="randn")


A5 = [
    ("causal", [4096], None, False),
    ("causal", [4097], None, False),
    ("causal", [4096, 5120, 4352], None, False),
    ("causal", [4097, 5333, 4200], None, False),
    ("null", [8192], None, False),
    ("sliding_window_causal[4096]", [8192], None, False),
    ("null", [4096, 300], [5333, 8192], False),  # cross-attention
    ("causal", [4097, 5333], None, True),  # sink
]


@pytest.mark.parametrize(
    ("mask", "lengths", "num_keys", "sink"), A5, ids=lambda value: str(value).replace(" ", "")
)
def test_a5_ragged_and_paged(mask, lengths, num_keys, sink):
    """H32/kv8 D128, page 256: paged against contiguous within 2e-2; ours are the same bits."""
    results = []
    for page_size in (256, 0):
        config = MhaConfig(*HEADS, mask=mask, ragged=True, page_size=page_size, sink=sink, lse=True)
        shape = {"lengths": lengths, "num_keys": num_keys, "data": "randn"}
        if page_size or FULL:
            trial, outputs = accepted(config, 2e-2, 2e-2, **shape)
        else:  # the same numbers as the paged run's, whose oracles have spoken
            trial = MhaTrial(mha_inputs(config, **shape)).sampled(WORKGROUPS, seed=0)
            launcher = EmulatedLauncher(workgroups=trial.workgroups)
            outputs, _ = trial.run(built(config), launcher)
        results.append((trial.workgroups, outputs))
    assert results[0][0] == results[1][0]
    for name in ("o", "lse"):
        paged, contiguous = (outputs[name].astype(np.float32) for _, outputs in results)
        assert np.array_equal(paged, contiguous, equal_nan=True)


def test_a6_135_tiles_the_last_of_47():
    """8623 keys, null: an image model's shape (published: SSIM 0.994 of the picture)."""
    accepted(MhaConfig(*HEADS, mask="null"), 2e-2, 2e-2, seq_len=8623)
