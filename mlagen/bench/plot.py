"""A report as bars: TFLOP/s of every contender, workload by workload."""

from __future__ import annotations

from pathlib import Path

from mlagen.bench.figure import drawn, new_figure
from mlagen.bench.report import BenchReport
from mlagen.disk import checked_output, write_file
from mlagen.errors import ConfigError

SUFFIXES = (".png", ".svg", ".pdf")


def check_path(path: Path | str) -> Path:
    """The file to write. ConfigError for another kind; MissingError without matplotlib."""
    file = Path(path)
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"a plot {file.name!r} is of no known kind", hint=f"kinds: {', '.join(SUFFIXES)}"
        )
    new_figure()
    return checked_output(file)


def plot(report: BenchReport, path: Path) -> None:
    """Draws the report into the file. WriteError: it cannot be written."""
    names = list(
        dict.fromkeys(r.name for row in report.rows for r in row.results if r.times is not None)
    )
    figure = new_figure(figsize=(9, 1.2 + 0.28 * len(report.rows) * (len(names) + 1)))
    axes = figure.subplots()
    height = 1.0 / (len(names) + 1)
    for index, name in enumerate(names):
        at, rates = [], []
        for line, row in enumerate(report.rows):
            for result in row.results:
                if result.name == name and result.times is not None:
                    at.append(line + index * height)
                    rates.append(row.work.flop / result.times.median / 1e12)
        axes.barh(at, rates, height=height, label=name)
    axes.set_yticks(
        [line + height * (len(names) - 1) / 2 for line in range(len(report.rows))],
        [str(row.work) for row in report.rows],
    )
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s")
    axes.set_title(f"{report.kernel}, {report.facts.get('device', '')}")
    if names:
        axes.legend()
    write_file(path, drawn(figure, path.suffix, bbox_inches="tight"))
