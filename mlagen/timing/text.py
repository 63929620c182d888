"""A report as facts and tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.timing.compare import SpeedComparison
from mlagen.timing.corners import CLOCK_ERROR
from mlagen.timing.model import Interval, Simulation


@dataclass(frozen=True, slots=True)
class TimingTable:
    """Rows under their column names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def facts(report: Simulation) -> list[tuple[str, str]]:
    """Name and value, one a line: the prediction first."""
    e = report.estimate
    simulated = "all simulated" if e.simulated == e.workgroups else f"{e.simulated} simulated"
    work: list[tuple[str, str]] = []
    rate = ""
    if e.flops:  # of matrix instructions; a norm has none
        shown = f"{_interval(e.tflops, 1.0)} TFLOP/s ({e.flops / 1e12:.3f} TFLOP)"
        work = [("matrix work", shown)]
        rate = f", {e.bound_tflops:.{_digits(e.bound_tflops)}f} TFLOP/s"
    found = [
        ("kernel", report.kernel),
        ("time", f"{_interval(e.seconds, 1e6)} us under load"),
        *work,
        ("lower bound", f"{e.bound_seconds * 1e6:.1f} us: instruction issue at "
                        f"{report.constants['max_clock']:.2f} GHz{rate}"),
        ("a tile", f"{report.cycles_per_tile:.0f} cycles, matrix units busy for "
                   f"{report.matrix_utilisation:.1%}"),
        ("clock", _clock(report)),
        ("grid", f"{e.workgroups} workgroups ({simulated}), {e.residents} a compute unit at a "
                 f"time, {e.rounds:.2f} rounds"),
        ("memory", f"{e.memory_bytes / 1e6:.1f} MB asked for; at least "
                   f"{e.memory_seconds * 1e6:.1f} us at the HBM's rate"),
        ("simulated", f"{report.instructions} wave-instructions in {report.seconds:.2f} s"),
    ]  # fmt: skip
    if report.lds_conflict_cycles:
        found.append(("LDS", f"{report.lds_conflict_cycles:.0f} cycles of bank conflicts"))
    return found


def _clock(report: Simulation) -> str:
    """The clock under load, and what decides it."""
    e, limit = report.estimate, report.constants["power_limit"]
    if e.clock >= report.constants["max_clock"]:
        return f"{e.clock:.2f} GHz, the maximum, at {e.watts:.0f} of {limit:.0f} W"
    error = f"a clock of a published kernel is {CLOCK_ERROR:.1%} off in the mean"
    return f"{e.clock:.2f} GHz under load, which takes the {limit:.0f} W of the limit ({error})"


def tables(report: Simulation, *, lines: int = 12) -> list[TimingTable]:
    """Roles, pipes, stalls, clusters, lines, corners."""
    return [
        _roles(report),
        _pipes(report),
        *_clusters(report),
        _lines(report, lines),
        *_corners(report),
    ]


def _interval(value: Interval, scale: float) -> str:
    each = [x * scale for x in (value.value, value.low, value.high)]
    digits = _digits(each[0])
    return f"{each[0]:.{digits}f} ({each[1]:.{digits}f} to {each[2]:.{digits}f})"


def _digits(value: float) -> int:
    return 0 if value >= 1000 else 1


def _waves(waves: Sequence[int]) -> str:
    whole = list(waves) == list(range(waves[0], waves[-1] + 1))
    return f"{waves[0]}-{waves[-1]}" if whole and len(waves) > 1 else ",".join(map(str, waves))


def _roles(report: Simulation) -> TimingTable:
    rows = tuple(
        (
            _waves(role.waves), f"{role.loop:#x}", str(role.iterations), str(role.tiles),
            f"{role.instructions:.1f}", f"{role.matrix:.1f}", f"{role.matrix_cycles:.0f}",
            f"{role.cycles:.0f}",
        )
        for role in report.roles
    )  # fmt: skip
    columns = ("waves", "loop", "iterations", "tiles each", "instructions", "MFMA",
               "MFMA cycles", "cycles")  # fmt: skip
    return TimingTable("roles: one wave, a tile", columns, rows)


def _pipes(report: Simulation) -> TimingTable:
    busy = [(name, f"{part:.1%}") for name, part in report.utilisation.items()]
    waits = [
        (name, f"{part:.1%}")
        for name, part in sorted(report.stalls.items(), key=lambda item: -item[1])
        if part >= 0.0005
    ]
    rows = []
    for i in range(max(len(busy), len(waits))):
        left = busy[i] if i < len(busy) else ("", "")
        right = waits[i] if i < len(waits) else ("", "")
        rows.append((*left, *right))
    return TimingTable("pipes in the steady state, and what waves do in the hot loops",
                       ("pipe", "busy", "waves", "of their time"), tuple(rows))  # fmt: skip


def _clusters(report: Simulation) -> list[TimingTable]:
    found = []
    for role in report.roles:
        rows = []
        for cluster in role.clusters:
            worst = sorted(cluster.stalls.items(), key=lambda item: -item[1])[:3]
            rows.append((
                str(cluster.number), f"{cluster.first:#x}", str(cluster.instructions),
                str(cluster.matrix), f"{cluster.cycles:.0f}", f"{cluster.issuing:.0f}",
                ", ".join(f"{name} {cycles:.0f}" for name, cycles in worst), cluster.place,
            ))  # fmt: skip
        columns = ("cluster", "at", "instructions", "MFMA", "cycles", "issuing", "waiting for",
                   "source")  # fmt: skip
        title = f"waves {_waves(role.waves)}: an iteration, barrier to barrier"
        found.append(TimingTable(title, columns, tuple(rows)))
    return found


def _lines(report: Simulation, count: int) -> TimingTable:
    rows = tuple(
        (line.place, line.reason, str(line.cycles), line.text) for line in report.lines[:count]
    )
    return TimingTable(
        "where waves stood longest", ("place", "reason", "wave-cycles", "instruction"), rows
    )


def _corners(report: Simulation) -> list[TimingTable]:
    if not report.corners:
        return []
    rows = tuple(
        (corner.name, f"{corner.cycles:.0f}", f"{corner.clock:.2f}", f"{corner.ratio:.3f}",
         f"{corner.misfit:.1%}", "" if corner.plausible else "does not explain what was measured")
        for corner in report.corners
    )  # fmt: skip
    columns = ("corner", "cycles", "GHz", "time, relative", "misfit", "")
    return [
        TimingTable("sensitivity: each corner with the energies that fit it best", columns, rows)
    ]


def comparison_facts(found: SpeedComparison) -> list[tuple[str, str]]:
    """Who is faster, and whether that counts."""
    if found.counts:
        verdict = "in every plausible corner, by more than the error of ratios"
    elif found.same_sign:
        verdict = "in every plausible corner, but not by more than the error of ratios"
    else:
        verdict = "no: the plausible corners disagree"
    return [
        ("first", f"{found.first}: {found.seconds[0] * 1e6:.1f} us"),
        ("second", f"{found.second}: {found.seconds[1] * 1e6:.1f} us"),
        ("gain", f"the first is {found.gain:.3f} times as fast under load ({found.low:.3f} to "
                 f"{found.high:.3f})"),
        ("bound", f"{found.bound_gain:.3f} times by issue alone"),
        ("counts", f"{verdict} ({found.ratio_error:.1%})"),
    ]  # fmt: skip


def comparison_table(found: SpeedComparison) -> TimingTable:
    """Both in every corner."""
    rows = tuple(
        (pair.name, f"{pair.first * 1e6:.1f}", f"{pair.second * 1e6:.1f}", f"{pair.gain:.3f}",
         "" if pair.plausible else "does not explain what was measured")
        for pair in found.corners
    )  # fmt: skip
    return TimingTable("corners", ("corner", "first, us", "second, us", "gain", ""), rows)
