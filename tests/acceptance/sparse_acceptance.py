"""Published shapes of sparse prefill and decode in the emulator, by both oracles. Of prefill some
query rows of each call, by the published tolerances, too: the blocks of other rows do not run, and
what they would write stays NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sparse_published import COSINE, FAR, FAR_SHARE, MEAN, MOST, Published, published

from mlagen.artifact import Artifact
from mlagen.attention.latent.facts import facts_of, order_of
from mlagen.families.mla_sparse.benchmark.judge import outside_oracles
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.splits import groups_of
from mlagen.families.mla_sparse.verification import PREFILL
from mlagen.launch import EmulatedLauncher
from mlagen.verify import verify


def ran(artifact: Artifact, call: Published, rows: list[int], mode: Any) -> dict[str, Any]:
    """Outputs of the call, of which the blocks of these rows ran."""
    count = groups_of(call.inputs.config.num_heads, facts_of(artifact.manifest).rows)
    blocks = [(row * count + n, 0, 0) for row in rows for n in range(count)]
    trial = PREFILL.trial(call.inputs)
    outputs, report = trial.run(artifact, EmulatedLauncher(workgroups=blocks, mode=mode))
    assert report.emulation is not None and not report.emulation.findings
    whole = {"o": outputs["o"][0]}
    whole |= {name: outputs[name][0, ..., 0] for name in ("lse", "max_logits")}
    unwritten = np.delete(whole["o"], rows, axis=0)
    assert np.isnan(unwritten.astype(np.float32)).all()
    return {name: array[rows] for name, array in whole.items()}


def of_rows(call: Published, rows: list[int]) -> Any:
    """The call of these rows alone."""
    inputs = call.inputs
    own = None if inputs.topk_length is None else inputs.topk_length[rows]
    return replace(inputs, q=inputs.q[rows], indices=inputs.indices[rows], topk_length=own)


def check_prefill(artifact: Artifact, topk: int) -> None:
    """Published calls of the kernel's heads with lists of `topk`."""
    heads, far = artifact.manifest.problem["num_heads"], []
    for n, call in enumerate(published(MlaSparsePrefillConfig(heads), topk)):
        rows = sorted({0, len(call.lengths) - 1, int(np.argmax(call.lengths))})
        found = ran(artifact, call, rows, ("latest", "earliest")[n % 2])
        inputs, chosen = of_rows(call, rows), sorted({0, heads // 2, heads - 1})
        wrong = outside_oracles(inputs, found, order_of(artifact), splits=1, heads=chosen)
        assert not wrong, (n, wrong)
        want = exact(inputs, heads=chosen, order=order_of(artifact)).output.values[0]
        o = found["o"][:, chosen].astype(np.float64)
        error = np.abs(o - want)
        assert (error - call.rounding * np.abs(want)).max() <= MOST and error.mean() <= MEAN
        far.append((error > FAR).mean())
        if want.any():
            assert (o * want).sum() >= COSINE * np.linalg.norm(o) * np.linalg.norm(want)
        empty = call.lengths[rows] == 0
        assert not found["o"][empty].astype(np.float32).any()
        assert np.isneginf(found["lse"][empty]).all() and np.isfinite(found["lse"][~empty]).all()
    # Published for whole calls; three rows of one call are too few for a share.
    assert np.mean(far) < FAR_SHARE


def check_decode(artifact: Artifact, topk: int, keys: int, extra_topk: int) -> None:
    """Lists with `keys` of `topk` places, beside full ones, with or without a second cache; whole
    and in parts; with sinks."""
    shape: dict[str, Any] = {"batch": 2, "topk": topk, "lengths": (keys, topk)}
    if extra_topk:
        shape |= {"extra_topk": extra_topk, "extra_lengths": (extra_topk, extra_topk // 2)}
    for splits in (1, 2):
        report = verify(artifact, splits=splits, pattern="distinct", **shape)
        assert report.passed, report.facts()
