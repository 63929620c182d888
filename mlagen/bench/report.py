"""What a run of the benchmark says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlagen.bench.timing import Times
from mlagen.family.benchmark import Work

OURS = "mlagen"
TIMES = {  # how times are taken; a family says how its work is counted
    "seconds": "median of single calls, L2 flushed before each, contenders taking turns",
    "sustained_seconds": "mean of calls back to back over about 0.15 s, nothing flushed",
    "ratio": "a peer's seconds / ours",
}


@dataclass(frozen=True)
class BenchResult:
    """A contender in one workload: `times`, or the reason that there are none."""

    name: str
    times: Times | None = None
    error: float | None = None
    reason: str = ""
    wrong: bool = False  # it computed something else


@dataclass(frozen=True)
class BenchRow:
    """One workload; ours first."""

    work: Work
    results: tuple[BenchResult, ...]

    def ratio(self, result: BenchResult) -> float | None:
        """How many times as long as ours it takes."""
        ours = self.results[0].times
        if ours is None or result.times is None:
            return None
        return result.times.median / ours.median

    def to_json(self, ceilings: dict[str, Ceiling]) -> dict[str, Any]:
        return {
            "workload": self.work.to_fields(),
            "flop": self.work.flop,
            "bytes": self.work.bytes,
            "results": [self._result(result, ceilings) for result in self.results],
        }

    def _result(self, result: BenchResult, ceilings: dict[str, Ceiling]) -> dict[str, Any]:
        made: dict[str, Any] = {"name": result.name, "error": result.error}
        if result.times is None:
            return {**made, "reason": result.reason, "wrong": result.wrong}
        times, work = result.times, self.work
        rates = {
            "TFLOP/s": work.flop / times.median / 1e12,
            "GB/s": work.bytes / times.median / 1e9,
        }
        shares = {
            f"share_of_{name}": rates[top.unit] / top.rate
            for name, top in ceilings.items()
            if top.unit in rates
        }
        return {
            **made, "seconds": times.median, "least_seconds": times.least,
            "p90_seconds": times.p90, "sustained_seconds": times.sustained, **rates, **shares,
            "ratio": self.ratio(result),
        }  # fmt: skip


@dataclass(frozen=True)
class Ceiling:
    """What the GPU did in the same run: `rate` in `unit`."""

    rate: float
    unit: str
    times: Times


@dataclass(frozen=True)
class BenchReport:
    """`formulas`: how the family counts; `absent`: peers that did not load, with the reason;
    `versions`: of those that did."""

    kernel: str
    formulas: Mapping[str, str]
    facts: dict[str, str]
    ceilings: dict[str, Ceiling]
    versions: dict[str, str]
    absent: dict[str, str]
    repeats: int
    rows: tuple[BenchRow, ...]

    COLUMNS = ("workload", "who", "µs", "TFLOP/s", "GB/s", "back to back", "error", "ratio")

    @property
    def wrong(self) -> list[str]:
        """Workloads in which our own kernel is not right."""
        return [f"{row.work}: {row.results[0].reason}" for row in self.rows if row.results[0].wrong]

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "facts": self.facts,
            "formulas": {**self.formulas, **TIMES},
            "ceilings": {name: asdict(top) for name, top in self.ceilings.items()},
            "peers": self.versions,
            "absent": self.absent,
            "repeats": self.repeats,
            "rows": [row.to_json(self.ceilings) for row in self.rows],
        }

    def table(self) -> list[tuple[str, ...]]:
        """The rows as text, in `COLUMNS`."""
        lines: list[tuple[str, ...]] = []
        for row in self.rows:
            for result in row.results:
                error = "" if result.error is None else f"{result.error:.1e}"
                first = str(row.work) if result is row.results[0] else ""
                if result.times is None:
                    lines.append((first, result.name, result.reason, "", "", "", error, ""))
                    continue
                times, ratio = result.times, row.ratio(result)
                lines.append(
                    (
                        first, result.name, f"{times.median * 1e6:.1f}",
                        f"{row.work.flop / times.median / 1e12:.0f}",
                        f"{row.work.bytes / times.median / 1e9:.0f}",
                        f"{times.sustained * 1e6:.1f} µs", error,
                        "" if ratio is None else f"{ratio:.2f}",
                    )
                )  # fmt: skip
        return lines

    def headline(self) -> list[tuple[str, str]]:
        """What holds for all rows, by name."""
        tops = [(name, f"{top.rate:.0f} {top.unit}") for name, top in self.ceilings.items()]
        peers = [(name, f"version {text}") for name, text in self.versions.items()]
        absent = [(name, f"left out: {reason}") for name, reason in self.absent.items()]
        return [("kernel", self.kernel), *self.facts.items(), *tops, *peers, *absent]
