"""Sparse decode on sm_100a as callers have it: with its merge, for 148 SMs, and beside Hopper's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_calls import given, kernel, right

from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs
from mlagen.launch import LaunchReport
from mlagen.problem.formats import ELEMENT_TYPES

SINKS = (0.5, -1.0, np.inf, -np.inf, 3.0)
FP8 = {"dtype": "fp8_e4m3", "rows": "e4m3_row", "compute": "fp8"}


class Recorder:
    """A launcher that keeps the sizes of grids."""

    def __init__(self) -> None:
        self.sizes: list[Any] = []

    def launch(self, artifact: Any, *, tensors: Any, scalars: Any, sizes: Any) -> LaunchReport:
        self.sizes.append(sizes)
        return LaunchReport("recorded", (1, 1, 1), (288, 1, 1), 0.0)


def call(target: str, heads: int, fields: dict[str, Any], **shape: Any) -> tuple[Any, Any]:
    made = kernel("decode", target=target, num_heads=heads, **fields)
    shape = {"batch": 2, "topk": 330, "lengths": (330, 70), "page_size": 8, **shape}
    return made, mla_sparse_decode_inputs(made.config, **shape)


def bits(found: Any) -> list[bytes]:
    return [x.tobytes() for x in found]


@pytest.mark.parametrize(("heads", "fields"), [
    (8, {}), (128, {"rows": "v32", "q_len": 2}),
    (72, {"rows": "model1", "d_qk": 512, "extra": True, "causal": True}),
], ids=str)  # fmt: skip
def test_the_same_arrays_on_hopper(heads: int, fields: dict[str, Any]) -> None:
    """Each within the bounds of both oracles, in parts that its own kernel merges."""
    inputs: Any = None
    for target in ("sm90", "sm100"):
        made, own = call(target, heads, fields, sink=[SINKS[n % 5] for n in range(heads)])
        inputs = inputs or own
        for splits in (1, 3):
            right(made, inputs, made(**given(inputs, splits=splits)), splits)


@pytest.mark.parametrize(("heads", "fields"), [(8, {}), (72, FP8)], ids=str)
def test_parts_of_so_many_keys_whatever_the_batch(heads: int, fields: dict[str, Any]) -> None:
    """A query's bits are the same alone, among others, and in their parts of tiles without keys."""
    made, inputs = call("sm100", heads, fields, batch=3, lengths=(330, 70, 0))
    whole = made(**given(inputs, split_keys=128))
    right(made, inputs, whole, 3)
    for entry in range(3):
        own = slice(entry, entry + 1)
        lengths = inputs.topk_length[own]
        one = replace(inputs, q=inputs.q[own], indices=inputs.indices[own], topk_length=lengths)
        assert bits(made(**given(one, split_keys=128))) == bits(x[own] for x in whole)
    assert bits(made(**given(inputs, splits=3))) == bits(whole)


@pytest.mark.parametrize(
    ("heads", "batch", "splits"),
    [(64, 1, 32), (64, 4, 32), (64, 16, 8), (64, 74, 2), (64, 148, 1), (128, 2, 32), (128, 37, 2)],
)
def test_parts_fill_the_sms(heads: int, batch: int, splits: int) -> None:
    """Those of 148 SMs, one block each, two of a CTA pair."""
    launcher = Recorder()
    made = kernel("decode", launcher, "sm100", num_heads=heads)
    nothing = np.zeros((batch, 1, heads, 576), ELEMENT_TYPES["bf16"])
    made(nothing, nothing[:1, 0], np.zeros((batch, 1, 2048), np.int32), scale=0.1)
    assert launcher.sizes[0] == {"blocks": batch * -(-heads // 64) * splits}
    assert len(launcher.sizes) == 1 + (splits > 1)


@pytest.mark.parametrize("empty", ["-inf", "+inf"])
@pytest.mark.parametrize("heads", [8, 128])
def test_sinks_and_queries_without_keys(heads: int, empty: str) -> None:
    """In parts they are the merge's: a query whose lists name nothing has O = 0."""
    made, inputs = call("sm100", heads, {"q_len": 2}, pattern="mixed", lengths=(330, 0),
                        sink=[SINKS[n % 5] for n in range(heads)])  # fmt: skip
    for splits in (1, 4):
        o, lse = made(**given(inputs, splits=splits, empty_lse=empty))
        assert not o[1].any() and (lse[1] == float(empty)).all()
        right(made, inputs, (o, np.where(np.isposinf(lse), -np.inf, lse)), splits)


@pytest.mark.parametrize("fields", [{}, {"rows": "v32"}], ids=str)
@pytest.mark.parametrize("heads", [8, 128])
def test_every_block_lets_the_merge_begin(heads: int, fields: dict[str, Any]) -> None:
    """`launch_dependents` stands before anything may leave, in blocks of parts without keys too."""
    made = kernel("decode", target="sm100", num_heads=heads, **fields)
    lines = [line.strip() for line in made.artifact.text.split("\n")]
    feeder = lines.index("FEEDER:")
    found = lines.index("griddepcontrol.launch_dependents;", feeder)
    assert not any("bra" in line or line == "ret;" for line in lines[feeder + 1 : found])
