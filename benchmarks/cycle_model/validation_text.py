"""The validation as facts and tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cycle_model.ladder import Beside, KernelRow, Shape
from cycle_model.validation import (
    ClockVerdict,
    Ratio,
    ScheduleRatio,
    Score,
    Verdict,
    rank_violations,
)

from mlagen.timing.corners import LONG, Corner
from mlagen.timing.fitted import NAMES
from mlagen.timing.text import TimingTable


def facts(
    found: Sequence[Verdict],
    pairs: Sequence[Ratio],
    clocks: Sequence[ClockVerdict],
    schedules: Sequence[ScheduleRatio],
) -> list[tuple[str, str]]:
    """Errors in a few lines; calibration points do not count as held out."""
    held = [v for v in found if not v.point.calibrates]
    long = [v.error for v in held if v.seconds >= LONG]
    short = [v.error for v in held if v.seconds < LONG]
    held_pairs = [r for r in pairs if not (r.first.calibrates and r.second.calibrates)]
    wrong = rank_violations(held_pairs)
    fitted = [v.error for v in clocks if v.point.fits]
    attention = [r.error for r in schedules if "product" not in r.first.point.launch]
    return [
        ("clocks, fitted", _score(Score.of(fitted))),
        ("  held out", _score(Score.of([v.error for v in clocks if not v.point.fits]))),
        ("schedules of attention", _score(Score.of(attention))),
        ("calibration", _score(Score.of([v.error for v in found if v.point.calibrates]))),
        ("held out", _score(Score.of([v.error for v in held]))),
        (f"  {LONG * 1e3:g} ms and more", _score(Score.of(long))),
        ("  shorter", _score(Score.of(short))),
        ("ratios", _score(Score.of([r.error for r in held_pairs]))),
        ("rank order", f"{len(wrong)} pairs the wrong way round" if wrong else "right"),
    ]


def _score(score: Score) -> str:
    return f"{score.count} points, mean error {score.mean:.1%}, worst {score.worst:.1%}"


def points_table(found: Sequence[Verdict], substitutes: set[tuple[str, str]]) -> TimingTable:
    """Every point."""
    rows = []
    for verdict in found:
        point, shape = verdict.point, verdict.point.shape
        stand_in = (shape.kernel, point.commit) in substitutes
        rows.append((
            shape.kernel, str(shape.batch), str(shape.heads), str(shape.length), point.source,
            "newest" if stand_in else point.commit, " / ".join(f"{t:g}" for t in point.tflops),
            f"{verdict.bound:.0f}", f"{verdict.predicted:.0f}", f"{verdict.error:+.1%}",
            "calibration" if point.calibrates else "",
        ))  # fmt: skip
    columns = ("kernel", "batch", "heads", "tokens", "source", "object", "measured", "bound",
               "predicted", "error", "")  # fmt: skip
    return TimingTable("TFLOP/s, measured and predicted", columns, tuple(rows))


def ratios_table(pairs: Sequence[Ratio]) -> TimingTable:
    """Every pair of kernels."""
    rows = tuple(
        (r.first.shape.kernel, r.second.shape.kernel, str(r.first.shape.length), r.first.source,
         f"{r.measured:.3f}", f"{r.predicted:.3f}", f"{r.error:+.1%}")
        for r in pairs
    )  # fmt: skip
    columns = ("first", "second", "tokens", "source", "measured", "predicted", "error")
    return TimingTable("ratios of TFLOP/s between kernels", columns, rows)


def clocks_table(found: Sequence[ClockVerdict]) -> TimingTable:
    """Kernels of `clocks`: the power model alone."""
    rows = tuple(
        (v.point.name, v.point.launch, v.point.source, v.point.form, f"{v.point.busy:.1%}",
         f"{v.point.tflops:.0f}", f"{v.measured:.2f}", f"{v.clock:.2f}", f"{v.predicted:.0f}",
         f"{v.error:+.1%}", "" if v.point.fits else "held out")
        for v in found
    )  # fmt: skip
    columns = ("kernel", "launch", "source", "format", "matrix busy", "TFLOP/s", "GHz",
               "GHz predicted", "TFLOP/s predicted", "error", "")  # fmt: skip
    return TimingTable("kernels with measured cycles: the clock that 1400 W allow", columns, rows)


def schedules_table(found: Sequence[ScheduleRatio]) -> TimingTable:
    """Two schedules of one kernel: by issue, measured, predicted."""
    rows = tuple(
        (r.first.point.name, r.second.point.name, r.first.point.launch, f"{r.issue:.3f}",
         f"{r.measured:.3f}", f"{r.predicted:.3f}", f"{r.error:+.1%}")
        for r in found
    )  # fmt: skip
    columns = ("first", "second", "launch", "by issue", "measured", "predicted", "error")
    return TimingTable("two schedules of the same work, one source", columns, rows)


def kernels_table(kernels: Sequence[KernelRow], shape: Shape) -> TimingTable:
    """Kernels side by side."""
    rows = tuple(
        (k.name, f"{k.tile[0]} x {k.tile[1]}", f"{k.cycles_per_tile:.0f}", f"{k.matrix:.1%}",
         f"{k.bound:.0f}", f"{k.clock:.2f}", f"{k.tflops.value:.0f}",
         f"{k.tflops.low:.0f} to {k.tflops.high:.0f}")
        for k in kernels
    )  # fmt: skip
    title = f"batch {shape.batch}, {shape.heads} heads, {shape.length} tokens"
    columns = (
        "kernel",
        "tile",
        "cycles a tile",
        "matrix busy",
        "bound",
        "GHz",
        "TFLOP/s",
        "interval",
    )
    return TimingTable(title, columns, rows)


def beside_table(pairs: Sequence[Beside]) -> TimingTable:
    """How many times faster under load, in every plausible corner: a column a pair of kernels."""
    return _corners_table(
        "times faster under load",
        pairs,
        [(pair.gain, pair.corners) for pair in pairs],
    )


def bound_table(pairs: Sequence[Beside]) -> TimingTable:
    """The same by issue alone."""
    return _corners_table(
        "times faster by issue alone",
        pairs,
        [(pair.bound, pair.bound_corners) for pair in pairs],
    )


def _corners_table(
    title: str, pairs: Sequence[Beside], gains: Sequence[tuple[float, Mapping[str, float]]]
) -> TimingTable:
    rows = [("the table's constants", *(f"{gain:.3f}" for gain, _ in gains))]
    rows += [(corner, *(f"{tried[corner]:.3f}" for _, tried in gains)) for corner in gains[0][1]]
    rows.append(("least", *(f"{min(gain, *tried.values()):.3f}" for gain, tried in gains)))
    columns = ("corner", *(f"{pair.first} / {pair.second}" for pair in pairs))
    return TimingTable(title, columns, tuple(rows))


def fit_table(fitted: Sequence[tuple[Corner, Mapping[str, float], float]]) -> TimingTable:
    """The energies of every corner as they were fitted now, and whether the table has them."""
    rows = tuple(
        (
            corner.name,
            *(f"{value:.3g}" for value in found.values()),
            f"{misfit:.1%}",
            "" if _alike(corner, found, misfit) else "the table has others",
        )
        for corner, found, misfit in fitted
    )
    return TimingTable("fit of the energies, pJ", ("corner", *NAMES, "misfit", ""), rows)


def _alike(corner: Corner, found: Mapping[str, float], misfit: float) -> bool:
    held = zip((*corner.energies, corner.misfit), (*found.values(), misfit), strict=True)
    return all(abs(a - b) <= 0.01 * max(abs(b), 0.5) for a, b in held)
