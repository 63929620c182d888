"""An artifact verified by the calls that reach all of its code, as one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlagen.artifact import Artifact
from mlagen.errors import MlagenError
from mlagen.locate import LocatedFinding
from mlagen.severity import ERROR, Severity
from mlagen.verify.coverage import Coverage, coverage_of
from mlagen.verify.report import VerifyReport, each_defect, shown_ratio, shown_size
from mlagen.verify.run import DATA, Mode, kind_of, verify

SCHEMA = "mlagen.verify.thorough/2"


@dataclass(frozen=True)
class ThoroughReport:
    """The reports of several calls of one artifact. `limits`: what no call can reach, and why."""

    artifact: Artifact
    seed: int
    calls: tuple[VerifyReport, ...]
    limits: tuple[str, ...]

    @cached_property
    def coverage(self) -> Coverage:
        """What all calls reached together."""
        runs = [run for call in self.calls for run in call.runs]
        return coverage_of(self.artifact, [run.executions for run in runs])

    @property
    def right(self) -> bool:
        """Every call's output is within both bounds."""
        return all(call.right for call in self.calls)

    @property
    def clean(self) -> bool:
        """The sanitizer found nothing in any call, and completion times changed no bit."""
        return all(call.clean for call in self.calls)

    @property
    def passed(self) -> bool:
        """Every call passed. What was not reached is told, and fails nothing."""
        return all(call.passed for call in self.calls)

    @property
    def findings(self) -> tuple[LocatedFinding, ...]:
        """The findings of all calls, each defect once."""
        return each_defect([finding for call in self.calls for finding in call.findings])

    def error(self, fail_on: Severity = ERROR) -> MlagenError | None:
        """Why the artifact did not pass: a wrong result before all else; None when it passed.
        `fail_on`: the least severity of a finding that fails."""
        ordered = sorted(self.calls, key=lambda call: (call.right, call.clean))
        return next(filter(None, (call.error(fail_on) for call in ordered)), None)

    ERROR_COLUMNS = ("shape", "wrong", "NaN", "error / bound", "oracle", "worst at")

    def error_rows(self) -> list[tuple[str, ...]]:
        """One row a call, its worst comparison, under ERROR_COLUMNS."""
        rows: list[tuple[str, ...]] = []
        for call in self.calls:
            worst = call.worst()
            rows.append(
                (
                    ", ".join(f"{name} {shown_size(size, 4)}" for name, size in call.sizes.items()),
                    str(worst.failures),
                    str(worst.nans),
                    shown_ratio(worst.max_ratio),
                    worst.oracle,
                    call.place(worst.worst),
                )
            )
        return rows

    HEAD_COLUMNS = VerifyReport.HEAD_COLUMNS

    def head_rows(self) -> list[tuple[str, ...]]:
        """One row a call, head and oracle, under HEAD_COLUMNS."""
        return [row for call in self.calls for row in call.head_rows()]

    def facts(self, fail_on: Severity = ERROR) -> list[tuple[str, str]]:
        """Name and value, one a line."""
        first = self.calls[0]
        own = dict(first.facts())
        runs = [run for call in self.calls for run in call.runs]
        instructions = sum(run.wave_instructions for run in runs)
        bad = [call for call in self.calls if not call.clean]
        kinds = ", ".join(dict.fromkeys(call.data for call in self.calls))
        verdict = "FAILED" if self.error(fail_on) else "passed"
        judges = own["outputs"].partition(" by ")[2]
        return [
            ("kernel", own["kernel"]),
            ("problem", own["problem"]),
            ("data", f"{kinds}, seed {self.seed}"),
            ("proof", own["proof"]),
            ("executed", f"{instructions} wave instructions in {len(runs)} runs"),
            ("emulated", f"{sum(run.seconds for run in runs):.2f} s"),
            ("oracles", f"{sum(call.oracle_seconds for call in self.calls):.2f} s"),
            ("outputs", f"{'right' if self.right else 'WRONG'} by {judges}"),
            ("sanitizer", dict((bad[0] if bad else first).facts())["sanitizer"]),
            *(("not possible", limit) for limit in self.limits if not self.coverage.complete),
            ("verdict", f"{verdict}; {self.coverage.verdict} in {len(self.calls)} calls"),
        ]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, `schema` first; `calls` are reports of single calls."""
        calls = [call.to_json() for call in self.calls]
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "right": self.right,
            "clean": self.clean,
            "coverage": self.coverage.to_json(),
            "limits": list(self.limits),
            "calls": calls,
        }


def verify_thoroughly(
    artifact: Artifact,
    *,
    seed: int = 0,
    modes: Sequence[Mode] = ("latest", "earliest"),
    progress: Callable[[int, int], None] | None = None,
) -> ThoroughReport:
    """Runs `artifact` on the calls that its kind says reach all code and judges each; see `verify`.

    `progress(done, total)` is called as calls finish.
    """
    chosen = kind_of(artifact).covering(artifact)
    reports = []
    for call in chosen.calls:
        data = call.data or DATA
        reports.append(
            verify(artifact, data=data, seed=seed, modes=modes, thin=call.thin, **call.shape)
        )
        if progress:
            progress(len(reports), len(chosen.calls))
    return ThoroughReport(artifact, seed, tuple(reports), chosen.limits)
