"""Acceptance of mla_prefill_v2 at production shapes: the published rows A1, A2, A3 and A12.

Each row is judged by its published tolerance and by both oracles, which are far sharper. By default
with few heads and two workgroups of a case; with MLAGEN_ACCEPTANCE=1 at the published shapes, with
sixteen workgroups, or all of them where the grid is persistent: some minutes.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.codegen import build
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.kernel import MlaPrefillKernel
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.mla_prefill.verification import KIND
from mlagen.launch import EmulatedLauncher
from mlagen.problem.expected import compare

FULL = "MLAGEN_ACCEPTANCE" in os.environ
WORKGROUPS = 16 if FULL else 2
FEW_ROWS = 64  # that the oracles of a persistent run look at, drawn from all, or all

pytestmark = pytest.mark.acceptance


@lru_cache(maxsize=4)
def built(config):
    return build("mla_prefill_v2", config)


@lru_cache(maxsize=4)
def persistent(config, arguments):
    return build("mla_prefill_v2", config, knobs={"grid": "persistent", "arguments": arguments})


def cosine(got, reference):
    """The least cosine of a head's outputs with the reference's. [..., heads, depth]"""
    a, b = (np.moveaxis(x, -2, 0).reshape(x.shape[-2], -1) for x in (got, reference))
    return ((a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).min()


def judged(oracle, got, least):
    """By an oracle's bound; by the published cosine where it is the exact one."""
    comparison = compare(oracle, got)
    assert comparison.passed, (oracle.oracle, comparison.worst)
    assert comparison.nans == 0
    if oracle.oracle == "exact":
        assert cosine(oracle.select(got).astype(np.float64), oracle.values) >= least


def accepted(config, least, **shape):
    """A sample of the workgroups of a static grid."""
    inputs = mla_prefill_inputs(config, data="half", quantise=True, **shape)
    trial = KIND.trial(inputs).sampled(WORKGROUPS, seed=0)
    outputs, report = trial.run(built(config), EmulatedLauncher(workgroups=trial.workgroups))
    assert not report.emulation.findings
    for oracle in trial.oracles():
        judged(oracle, outputs["o"], least)


def config_of(heads, kv_heads, mask, **more):
    return MlaConfigV2(heads, kv_heads, mask=mask, dtype="fp8_e4m3", output_dtype="bf16", **more)


A1 = [(32, 2048, "null"), (32, 2048, "causal"), (16, 2048, "null"), (16, 2048, "causal"),
      (16, 8192, "causal")]  # fmt: skip


@pytest.mark.parametrize(("heads", "tokens", "mask"), A1 if FULL else A1[1:5:3])
def test_a1(heads, tokens, mask):
    """fp8, one K/V head: cosine of each head >= 0.99."""
    accepted(config_of(heads, 1, mask), 0.99, seq_len=tokens)


A2 = [(h, s, mask) for h in (16, 32, 128) for s in (512, 2048, 8192) for mask in ("null", "causal")]


@pytest.mark.parametrize(("heads", "tokens", "mask"), A2 if FULL else [(32, 2048, "causal")])
def test_a2_groups(heads, tokens, mask):
    """Eight K/V heads: cosine of each head >= 0.997."""
    accepted(config_of(heads, 8, mask), 0.997, seq_len=tokens)


def walked(artifact, inputs, workgroups, least):
    """All work items of a persistent grid; some rows of the result."""
    plan = plan_inputs(inputs, workgroups, listed=inputs.config.page_size == 1)
    kernel = MlaPrefillKernel(artifact, EmulatedLauncher())
    run = kernel.run(inputs, plan=plan)
    assert run.report is not None and not run.report.emulation.findings
    got = inputs.output_view(run.output)
    few = min(FEW_ROWS, got.shape[1])
    rows = np.sort(np.random.default_rng(0).choice(got.shape[1], few, replace=False)).tolist()
    for expected in (exact(inputs, rows=rows), rounded(inputs, rows=rows, plan=plan)):
        judged(expected.output, got, least)


A3 = [(16, 2048, "causal", 16), (16, 2048, "null", 256), (32, 2048, "causal", 256)]


@pytest.mark.parametrize(
    ("heads", "tokens", "mask", "workgroups"), A3 if FULL else [(2, 1024, "causal", 5)]
)
def test_a3_persistent(heads, tokens, mask, workgroups):
    """As many workgroups as heads, so that nothing is split, and 256: cosine >= 0.99."""
    config = config_of(heads, 1, mask, ragged=True)
    inputs = mla_prefill_inputs(config, data="half", quantise=True, lengths=[tokens])
    walked(persistent(config, "mlagen"), inputs, workgroups, 0.99)


A12 = [(h, b, mask) for h in (1, 16) for b in (1, 4, 16) for mask in ("null", "causal")]


@pytest.mark.parametrize(("heads", "batch", "mask"), A12 if FULL else [(1, 4, "causal")])
def test_a12_pages_of_one_key(heads, batch, mask):
    """AITER's own settings and arguments: MHA, pages of one key, contexts of 21 to 1200 tokens, the
    last of which are the queries; its tolerance is far above both bounds."""
    config = config_of(heads, heads, mask, ragged=True, page_size=1)
    rng = np.random.default_rng(batch)
    keys = [21, *rng.integers(22, 1200, batch - 1).tolist()]
    lengths = [min(count, int(rng.integers(1, count + 1))) for count in keys]
    starts = [count - rows for count, rows in zip(keys, lengths, strict=True)]
    inputs = mla_prefill_inputs(
        config, data="half", quantise=True, lengths=lengths, num_keys=keys, start_pos=starts
    )
    walked(persistent(config, "aiter"), inputs, 8, 0.99)


def test_the_cosine_sees_one_wrong_head():
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((1, 64, 4, 128))
    wrong = reference.copy()
    wrong[:, :, 2] += 0.2 * rng.standard_normal((64, 128))
    assert cosine(reference, reference) > 0.999 and cosine(wrong, reference) < 0.99
