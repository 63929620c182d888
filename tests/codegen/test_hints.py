"""What a plain order calls a hint may be left out, so it may leave nothing that is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlagen.codegen.build import run_schedule
from mlagen.codegen.schedules import load
from mlagen.errors import ProofError
from mlagen.problem.fields import example_of
from mlagen.targets.nvidia.codegen.build import prove_pipeline

ROOT = Path(__file__).resolve().parents[2]
GEMM = str(ROOT / "examples/gemm_bf16.py:gemm_bf16_sm90")


def _with_hint(kernel: str, name: str) -> tuple[Any, Any]:
    """The kernel's schedule where its plain order calls an operation a hint, and its templates."""
    function = load(kernel)
    _, schedule, templates = run_schedule(function, example_of(function.problem_type))
    plain = schedule.plain
    left = {
        section: tuple(part for part in getattr(plain, section) if part.key != name)
        for section in ("before", "tiles", "after")
    }
    return replace(schedule, plain=replace(plain, hints=plain.hints | {name}, **left)), templates


@pytest.mark.parametrize(
    ("kernel", "name", "told"),
    [
        (GEMM, "mma", r"error\[hint\] .* is called a hint, and has `wgmma"),
        (GEMM, "copy feed", r"error\[hint\] .* is called a hint, and does copy\(feed, i"),
        ("mla_decode_merge_sm90", "log_sum", r"error\[data-flow\] .* of log_sum"),
    ],
)
def test_work_that_is_called_a_hint(kernel: str, name: str, told: str) -> None:
    with pytest.raises(ProofError, match=told):
        prove_pipeline(*_with_hint(kernel, name))


def test_a_hint_may_be_there_or_not() -> None:
    function = load("mla_decode_sm90")
    _, schedule, templates = run_schedule(function, example_of(function.problem_type))
    assert {"prefetch"} <= schedule.plain.hints
    streams = tuple(
        replace(s, loop=tuple(op for op in s.loop if op.key not in schedule.plain.hints))
        for s in schedule.streams
    )
    assert streams != schedule.streams
    for made in (schedule, replace(schedule, streams=streams)):
        assert not prove_pipeline(made, templates)[1].violations
