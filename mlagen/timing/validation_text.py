"""The validation as facts and tables of text."""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.timing.corners import Corner
from mlagen.timing.ladder import Beside, KernelRow, Shape
from mlagen.timing.text import Table
from mlagen.timing.validation import Ratio, Score, Verdict, rank_violations


def facts(found: Sequence[Verdict], pairs: Sequence[Ratio]) -> list[tuple[str, str]]:
    """Errors in a few lines; calibration points do not count."""
    held = [v for v in found if not v.point.calibrates]
    long = [v for v in held if v.point.shape.length >= 2048]
    held_pairs = [r for r in pairs if not (r.first.calibrates and r.second.calibrates)]
    wrong = rank_violations(held_pairs)
    return [
        ("calibration", _score(Score.of([v.error for v in found if v.point.calibrates]))),
        ("held out", _score(Score.of([v.error for v in held]))),
        ("  2048 tokens and more", _score(Score.of([v.error for v in long]))),
        ("ratios", _score(Score.of([r.error for r in held_pairs]))),
        ("rank order", f"{len(wrong)} pairs the wrong way round" if wrong else "right"),
    ]


def _score(score: Score) -> str:
    return f"{score.count} points, mean error {score.mean:.1%}, worst {score.worst:.1%}"


def points_table(found: Sequence[Verdict], substitutes: set[tuple[str, str]]) -> Table:
    """Every point."""
    rows = []
    for verdict in found:
        point, shape = verdict.point, verdict.point.shape
        stand_in = (shape.kernel, point.commit) in substitutes
        rows.append((
            shape.kernel, str(shape.batch), str(shape.heads), str(shape.length), point.source,
            "newest" if stand_in else point.commit, " / ".join(f"{t:g}" for t in point.tflops),
            f"{verdict.predicted:.0f}", f"{verdict.error:+.1%}",
            "calibration" if point.calibrates else "",
        ))  # fmt: skip
    columns = ("kernel", "batch", "heads", "tokens", "source", "object", "measured", "predicted",
               "error", "")  # fmt: skip
    return Table("TFLOP/s, measured and predicted", columns, tuple(rows))


def ratios_table(pairs: Sequence[Ratio]) -> Table:
    """Every pair of kernels."""
    rows = tuple(
        (r.first.shape.kernel, r.second.shape.kernel, str(r.first.shape.length), r.first.source,
         f"{r.measured:.3f}", f"{r.predicted:.3f}", f"{r.error:+.1%}")
        for r in pairs
    )  # fmt: skip
    columns = ("first", "second", "tokens", "source", "measured", "predicted", "error")
    return Table("ratios of TFLOP/s between kernels", columns, rows)


def kernels_table(kernels: Sequence[KernelRow], shape: Shape) -> Table:
    """Kernels side by side."""
    rows = tuple(
        (k.name, f"{k.tile[0]} x {k.tile[1]}", f"{k.cycles_per_tile:.0f}", f"{k.matrix:.1%}",
         f"{k.tflops.value:.0f}", f"{k.tflops.low:.0f} to {k.tflops.high:.0f}")
        for k in kernels
    )  # fmt: skip
    title = f"batch {shape.batch}, {shape.heads} heads, {shape.length} tokens"
    columns = ("kernel", "tile", "cycles a tile", "matrix busy", "TFLOP/s", "interval")
    return Table(title, columns, rows)


def beside_table(pairs: Sequence[Beside]) -> Table:
    """How many times faster, in every plausible corner: a column a pair of kernels."""
    rows = [("the table's constants", *(f"{pair.gain:.3f}" for pair in pairs))]
    rows += [
        (corner, *(f"{pair.corners[corner]:.3f}" for pair in pairs)) for corner in pairs[0].corners
    ]
    rows.append(("least", *(f"{pair.low:.3f}" for pair in pairs)))
    columns = ("corner", *(f"{pair.first} / {pair.second}" for pair in pairs))
    return Table("times faster", columns, tuple(rows))


def fit_table(fitted: Sequence[tuple[Corner, float, float]]) -> Table:
    """The clock of every corner, as it was fitted now and as the table has it."""
    rows = tuple(
        (corner.name, f"{sustain:.3f}", f"{misfit:.1%}", f"{corner.sustain:.3f}")
        for corner, sustain, misfit in fitted
    )
    return Table("fit of the clock", ("corner", "fitted", "misfit", "in the table"), rows)
