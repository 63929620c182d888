"""The model against published measurements, on AITER's objects where there are some.

`MLAGEN_AITER` names a folder with `fmha_v3_fwd/` and `mla/`; `MLAGEN_AITER_HISTORY` one with
`COMMIT/hsa/gfx950/…`, the objects that were measured.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cycle_model.ladder import Beside, Growth, Ladder, Shape, beside
from cycle_model.own import KERNELS
from cycle_model.points import POINTS, Point
from cycle_model.validation import (
    Library,
    Ratio,
    Score,
    Verdict,
    clock_verdicts,
    fit,
    rank_violations,
    ratios,
    schedule_ratios,
    verdicts,
)
from cycle_model.validation_text import beside_table, bound_table

from mlagen.timing import machine
from mlagen.timing.activity import Activity
from mlagen.timing.compare import RATIO_ERROR
from mlagen.timing.corners import CLOCK_ERROR, LONG, MODEL_ERROR, SHORT_ERROR, corners

NEEDED = ("MLAGEN_AITER", "MLAGEN_AITER_HISTORY")
objects = pytest.mark.skipif(
    not all(Path(os.environ.get(name, "?")).is_dir() for name in NEEDED),
    reason=f"{' and '.join(NEEDED)} name no folders of AITER's objects",
)
PAGE = Path(__file__).parents[2] / "docs" / "timing.md"


@cache
def library() -> Library:
    return Library(*(os.environ[name] for name in NEEDED))


@cache
def found() -> list[Verdict]:
    return verdicts(library(), machine())


@objects
def test_every_object_that_was_measured_is_there() -> None:
    assert found() and library().substitutes == set()


@objects
@pytest.mark.parametrize("index", [3, 4, 17, 25])
def test_corners_have_the_energies_that_they_say(index: int) -> None:
    corner = corners()[index]
    energies, misfit = fit(library(), machine().changed(**dict(corner.values)))
    held = [*corner.energies, corner.misfit]
    assert [*energies.values(), misfit] == pytest.approx(held, rel=0.01, abs=0.005)


@objects
def test_the_errors_are_those_that_the_page_tells() -> None:
    held = [v for v in found() if not v.point.calibrates]
    for errors, told in (
        ([v.error for v in held if v.seconds >= LONG], MODEL_ERROR),
        ([v.error for v in held if v.seconds < LONG], SHORT_ERROR),
    ):
        assert Score.of(errors).mean == pytest.approx(told, abs=0.001)
    pairs = ratios(found())
    assert Score.of([r.error for r in pairs]).worst == pytest.approx(RATIO_ERROR, abs=0.001)
    text = PAGE.read_text()
    for verdict in found():
        shape = verdict.point.shape
        row = f"| {shape.kernel} | {shape.batch} | {shape.heads} | {shape.length} |"
        told = [line for line in text.splitlines() if line.startswith(row)]
        cell = f"| {verdict.bound:.0f} | {verdict.predicted:.0f} | {verdict.error:+.1%}"
        assert any(cell in line for line in told)


def test_three_points_calibrate_and_none_of_them_is_held_out() -> None:
    names = [(p.shape.kernel, p.shape.length) for p in POINTS if p.calibrates]
    assert names == [("hd128_bf16", 8192), ("hd192_hd128_bf16", 8192), ("hd128_fp8", 8192)]
    assert len(POINTS) == 38


def test_useful_operations() -> None:
    assert Shape("", 1, 2, 1000).flops((128, 128), False) == 4 * 2 * 1000**2 * 128
    assert Shape("", 1, 2, 1000).flops((192, 128), True) == 2 * 1000**2 * 320


def test_a_launch_of_mirrored_tiles() -> None:
    """Three query tiles of a head: one pair, and a workgroup with half of the work."""
    on = machine().changed(dispatch=0, launch=0, cus=8)
    growth = Growth(0.0, 1.0)

    def cycles(length: int, heads: int) -> float:
        ladder = Ladder("k", None, {}, (256, 64), (128, 128), True, 2)  # type: ignore[arg-type]
        ladder.__dict__["work"] = (Activity(), Activity(vector=1.0))
        return ladder.launch(growth, Shape("k", 1, heads, length), on).cycles

    assert cycles(512, 8) == pytest.approx(512)  # eight workgroups on eight units
    assert cycles(512, 9) == pytest.approx(1024)
    # Sixteen, every other one half: the XCDs take turns, so four of them get all of the whole ones.
    assert cycles(768, 8) == pytest.approx(2 * 768)


def test_ratios_pair_kernels_of_one_source_and_shape_and_order_is_checked() -> None:
    def verdict(kernel: str, measured: float, predicted: float, source: str = "a") -> Verdict:
        return Verdict(Point(Shape(kernel, 1, 1, 64), (measured,), source, "c"), predicted)

    pairs = ratios([verdict("x", 100, 90), verdict("y", 110, 80), verdict("z", 1, 1, "b")])
    assert [(r.first.shape.kernel, r.second.shape.kernel) for r in pairs] == [("x", "y")]
    assert pairs[0].error == pytest.approx((90 / 80) / (100 / 110) - 1)
    assert rank_violations(pairs) == pairs
    near = Ratio(pairs[0].first, pairs[0].second, 1.01, 0.99)
    assert rank_violations([near]) == []
    assert Score.of([-0.1, 0.05]) == Score(2, pytest.approx(0.075), 0.1)
    assert np.isfinite(Score.of([]).mean)


def test_the_least_of_a_comparison_is_over_the_corners_and_the_table() -> None:
    pair = Beside("a", "b", 1.2, {"x": 1.1, "y": 1.3}, 1.4, {"x": 1.5, "y": 1.35})
    assert bound_table([pair]).rows[0][1] == "1.400" and bound_table([pair]).rows[-1][1] == "1.350"
    table = beside_table([pair])
    assert table.columns == ("corner", "a / b")
    assert table.rows == (
        ("the table's constants", "1.200"), ("x", "1.100"), ("y", "1.300"), ("least", "1.100"),
    )  # fmt: skip
    assert Beside("a", "b", 1.0, {"x": 1.1}, 1.0, {}).low == 1.0
    assert Beside("a", "b", 1.0, {"x": 1.1}, 1.0, {}).high == 1.1


@objects
def test_ours_beside_aiters_are_as_the_page_tells() -> None:
    """By issue and under load, at the table's constants and the least over the corners."""
    shape, text = Shape("", 16, 64, 8192), PAGE.read_text()
    first, *_, last = KERNELS
    for own in (first, last):
        pair = beside(own.ladder(), library().ladder(own.beside), shape, machine())
        least = min(pair.bound, *pair.bound_corners.values())
        cells = f"| {pair.bound:.3f} | {least:.3f} | {pair.gain:.3f} | {pair.low:.3f} to"
        assert f"| {own.name} | {own.beside} {cells}" in text
        assert pair.low > 1.0 and pair.gain < pair.bound


def test_the_page_has_the_clocks_that_the_power_model_gives() -> None:
    text, on = PAGE.read_text(), machine()
    verdicts = clock_verdicts(on)
    held = [v.error for v in verdicts if not v.point.fits]
    assert Score.of(held).mean == pytest.approx(CLOCK_ERROR, abs=0.001)
    for v in verdicts:
        row = f"| {v.point.name} | {v.point.launch} | {v.point.form} | {v.point.busy:.1%} |"
        cells = f" {v.point.tflops:.0f} | {v.measured:.2f} | {v.clock:.2f} | {v.error:+.1%} |"
        assert row + cells in text


def test_schedules_are_told_apart_by_time_and_not_by_cycles() -> None:
    """28 % fewer cycles were worth 10 % of speed: by cycles alone the error would be far larger."""
    pairs = [
        r for r in schedule_ratios(clock_verdicts(machine())) if "heads" in r.first.point.launch
    ]
    assert len(pairs) == 16
    score = Score.of([r.error for r in pairs])
    assert score.mean < 0.03 and score.worst < 0.06
    assert Score.of([r.issue / r.measured - 1 for r in pairs]).mean > 0.12
