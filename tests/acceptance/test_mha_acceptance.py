"""Acceptance of mha_prefill_v2 at production shapes: the published rows A4, A5 and A6.

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
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mha_prefill.verification import KIND
from mlagen.launch import EmulatedLauncher
from mlagen.problem.expected import compare

FULL = "MLAGEN_ACCEPTANCE" in os.environ
HEADS = (32, 8) if FULL else (8, 2)
WORKGROUPS = 16 if FULL else 2

pytestmark = pytest.mark.acceptance


@lru_cache(maxsize=4)
def built(config):
    return build("mha_prefill_v2", config)


def within(absolute, relative):
    """The published kind of tolerance: |err| <= absolute + relative |ref|."""

    def judge(got, reference):
        return (np.abs(got - reference) <= absolute + relative * np.abs(reference)).all()

    return judge


def alike(got, reference, least=0.994):
    """Structural similarity of the rows as a picture, in one window, with its usual constants."""
    span = reference.max() - reference.min()
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    means, both = (got.mean(), reference.mean()), np.cov(got.ravel(), reference.ravel())
    light = (2 * means[0] * means[1] + c1) / (means[0] ** 2 + means[1] ** 2 + c1)
    return light * (2 * both[0, 1] + c2) / (both[0, 0] + both[1, 1] + c2) >= least


def accepted(config, published, **shape):
    """Runs a sample of the workgroups, judged by `published(got, reference)` and by both oracles;
    the trial and its outputs, NaN beside the sample's rows."""
    inputs = mha_inputs(config, **shape)
    trial = KIND.trial(inputs).sampled(WORKGROUPS, seed=0)
    outputs, report = trial.run(built(config), EmulatedLauncher(workgroups=trial.workgroups))
    assert not report.emulation.findings
    for oracle in trial.oracles():
        comparison = compare(oracle, outputs[oracle.output])
        assert comparison.passed, (oracle.oracle, comparison.worst)
        assert comparison.nans == 0
        if oracle.oracle == "exact":
            assert published(oracle.select(outputs["o"]).astype(np.float64), oracle.values)
    return trial, outputs


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_a4_bf16(mask):
    """B1 S4096 H2 D128, randn: |err| <= 3e-2 + 3e-2 |ref|."""
    accepted(MhaConfigV2(2, 2, mask=mask), within(3e-2, 3e-2), seq_len=4096, data="randn")


def near(got, reference, least=0.99):
    """Cosine of the angle between each row and the reference's."""
    lengths = np.linalg.norm(got, axis=-1) * np.linalg.norm(reference, axis=-1)
    return ((got * reference).sum(axis=-1) >= least * lengths).all()


@pytest.mark.parametrize("kv_block", [64, 128])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_a4_fp8(mask, kv_block):
    """B1 S4096 H2 D128, randn, scales of the tensors' largest magnitudes: cosine >= 0.99."""
    config = MhaConfigV2(2, 2, mask=mask, dtype="fp8_e4m3", kv_block=kv_block)
    accepted(config, near, seq_len=4096, data="randn", quantise=True)


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
        config = MhaConfigV2(
            *HEADS, mask=mask, ragged=True, page_size=page_size, sink=sink, lse=True
        )
        shape = {"lengths": lengths, "num_keys": num_keys, "data": "randn"}
        if page_size or FULL:
            trial, outputs = accepted(config, within(2e-2, 2e-2), **shape)
        else:  # the same numbers as the paged run's, whose oracles have spoken
            trial = KIND.trial(mha_inputs(config, **shape)).sampled(WORKGROUPS, seed=0)
            launcher = EmulatedLauncher(workgroups=trial.workgroups)
            outputs, _ = trial.run(built(config), launcher)
        results.append((trial.workgroups, outputs))
    assert results[0][0] == results[1][0]
    for name in ("o", "lse"):
        paged, contiguous = (outputs[name].astype(np.float32) for _, outputs in results)
        assert np.array_equal(paged, contiguous, equal_nan=True)


def test_a6_135_tiles_the_last_of_47():
    """8623 keys, null: an image model's shape. Published: SSIM 0.994 of its picture; here it is
    that of the rows themselves."""
    accepted(MhaConfigV2(*HEADS, mask="null"), alike, seq_len=8623)


def test_the_similarity_sees_a_loss_of_weight():
    """As of keys that do not exist, taken into the row sum."""
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((256, 128))
    assert alike(reference, reference) and not alike(0.85 * reference, reference)


def test_the_cosine_sees_one_wrong_row():
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((256, 128))
    wrong = reference.copy()
    wrong[100] += 0.2 * rng.standard_normal(128)
    assert near(0.5 * reference, reference) and not near(wrong, reference)
