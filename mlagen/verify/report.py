"""What a verification found, as values and as rows for whoever prints them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from mlagen.artifact import Artifact, Proof
from mlagen.errors import FindingsError, MlagenError, WrongResultError
from mlagen.family import Sample, Size
from mlagen.launch_findings import findings_error
from mlagen.locate import LocatedFinding
from mlagen.problem.expected import Comparison, Worst
from mlagen.severity import ERROR, Severity, counted, failing
from mlagen.verify.coverage import Coverage, coverage_of

SCHEMA = "mlagen.verify/2"


@dataclass(frozen=True, slots=True)
class ModeReport:
    """One run. `wave_instructions`: executed by waves, in all; `counts`: by mnemonic; `executions`:
    by byte offset in the kernel."""

    mode: str
    comparisons: tuple[Comparison, ...]  # one an oracle
    findings: tuple[LocatedFinding, ...]
    same_bits: bool  # as the first run's output
    wave_instructions: int
    counts: Mapping[str, int]
    seconds: float
    executions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found out. `passed` is the verdict; tables and JSON show why."""

    kernel: str
    target: str
    problem: Mapping[str, Any]
    sizes: Mapping[str, Size]  # of this call, by the names of its kind of problem
    numbers: Mapping[str, float]  # likewise
    data: str
    seed: int
    proof: Proof
    runs: tuple[ModeReport, ...]
    oracle_seconds: float
    artifact: Artifact
    place: Callable[[Worst], str]  # an element's place in the problem's words
    sample: Sample | None = None  # None: all workgroups ran

    # ---- verdict ----------------------------------------------------------------------------

    @property
    def right(self) -> bool:
        """Every element of every run is within both bounds."""
        return all(c.passed for run in self.runs for c in run.comparisons)

    @property
    def clean(self) -> bool:
        """The sanitizer found nothing, and completion times changed no bit."""
        return all(run.same_bits and not run.findings for run in self.runs)

    @property
    def proved(self) -> bool:
        """Its manifest says so."""
        return self.proof.status == "proved"

    @property
    def passed(self) -> bool:
        """Right, without an error of the sanitizer, and nothing was found against it when it was
        built. Of an ordered kernel the oracles alone judge what it computes."""
        return self.error() is None

    @property
    def findings(self) -> tuple[LocatedFinding, ...]:
        """The findings of all runs, each defect once."""
        return each_defect([finding for run in self.runs for finding in run.findings])

    def error(self, fail_on: Severity = ERROR) -> MlagenError | None:
        """Why the artifact did not pass, with the exit code of that; None when it passed.
        `fail_on`: the least severity of a finding that fails."""
        worst = self.worst()
        if not self.right:
            return WrongResultError(f"{self.kernel}: {_described(worst, self.place(worst.worst))}")
        if wrong := failing(self.findings, fail_on):
            return findings_error(self.artifact, wrong)
        for run in self.runs:
            if not run.same_bits:
                return FindingsError(
                    f"{self.kernel}: the output of mode {run.mode} has other bits than that of "
                    f"mode {self.runs[0].mode}: a result depends on when a transfer completes"
                )
        if not self.proof.launchable:
            return FindingsError(
                f"{self.kernel} is unproved: " + "; ".join(self.proof.reasons or ("no reasons",)),
                hint="its output was right on this data, which proves nothing",
            )
        return None

    def worst(self) -> Comparison:
        """The comparison with the largest ratio of error to bound."""
        comparisons = [c for run in self.runs for c in run.comparisons]
        return max(comparisons, key=lambda c: (c.failures > 0, c.max_ratio))

    # ---- rows for whoever prints ------------------------------------------------------------

    def facts(self, fail_on: Severity = ERROR) -> list[tuple[str, str]]:
        """Name and value, one a line."""
        instructions = self.runs[0].wave_instructions
        oracles = {c.oracle.removesuffix(" LSE") for c in self.runs[0].comparisons}
        judges = "both oracles" if len(oracles) > 1 else f"the {oracles.pop()} oracle"
        numbers = "".join(f", {name} {value:.6g}" for name, value in self.numbers.items())
        seconds = ", ".join(f"{run.mode} {run.seconds:.2f} s" for run in self.runs)
        return [
            ("kernel", f"{self.kernel} for {self.target}"),
            ("problem", ", ".join(f"{k}={v}" for k, v in self.problem.items()) or "no fields"),
            ("shape", ", ".join(f"{name} {shown_size(size)}" for name, size in self.sizes.items())),
            ("data", f"{self.data}, seed {self.seed}{numbers}"),
            ("proof", self.proof.verdict()),
            *self._sample(),
            ("executed", f"{instructions} wave instructions in each run"),
            ("emulated", seconds),
            ("oracles", f"{self.oracle_seconds:.2f} s"),
            ("outputs", f"{'right' if self.right else 'WRONG'} by {judges}"),
            ("sanitizer", self._sanitizer()),
            *self._verdict(fail_on),
        ]

    def _verdict(self, fail_on: Severity) -> list[tuple[str, str]]:
        word = "FAILED" if self.error(fail_on) else "passed"
        if self.coverage is None:
            return [("verdict", word)]
        if self.coverage.complete:
            return [("verdict", f"{word}; {self.coverage.verdict}")]
        return [("covered", self.coverage.of_one_call), ("verdict", word)]

    @cached_property
    def coverage(self) -> Coverage | None:
        """What the runs reached of the code; None where none of them was emulated."""
        executions = [run.executions for run in self.runs if run.executions]
        return coverage_of(self.artifact, executions) if executions else None

    def _sample(self) -> list[tuple[str, str]]:
        if self.sample is None:
            return []
        count = f"{self.sample.workgroups} of {self.sample.of} workgroups"
        return [("sample", f"{count} were run; only their rows are compared")]

    def _sanitizer(self) -> str:
        if self.clean:
            modes = ", ".join(run.mode for run in self.runs)
            return f"clean; the same bits in modes {modes}" if len(self.runs) > 1 else "clean"
        differing = [run.mode for run in self.runs if not run.same_bits]
        parts = [counted(self.findings)] if self.findings else []
        parts += [f"other bits in mode {mode}" for mode in differing]
        return ", ".join(parts)

    ERROR_COLUMNS = (
        "mode", "oracle", "elements", "wrong", "NaN", "max |error|", "error / bound", "worst at",
    )  # fmt: skip

    def error_rows(self) -> list[tuple[str, ...]]:
        """One row a run and oracle, under ERROR_COLUMNS."""
        return [
            (
                run.mode,
                c.oracle,
                str(c.elements),
                str(c.failures),
                str(c.nans),
                f"{c.max_error:.3g}",
                shown_ratio(c.max_ratio),
                self.place(c.worst),
            )
            for run in self.runs
            for c in run.comparisons
        ]

    HEAD_COLUMNS = ("head", "oracle", "wrong", "NaN", "max |error|", "error / bound")

    def head_rows(self) -> list[tuple[str, ...]]:
        """One row a head and oracle, the worst over the runs, under HEAD_COLUMNS."""
        rows: list[tuple[str, ...]] = []
        for heads in zip(*(c.heads for run in self.runs for c in run.comparisons), strict=True):
            oracles = [c.oracle for run in self.runs for c in run.comparisons]
            for oracle in dict.fromkeys(oracles):
                mine = [h for h, name in zip(heads, oracles, strict=True) if name == oracle]
                rows.append(
                    (
                        str(mine[0].head),
                        oracle,
                        str(max(h.failures for h in mine)),
                        str(max(h.nans for h in mine)),
                        f"{max(h.max_error for h in mine):.3g}",
                        shown_ratio(max(h.max_ratio for h in mine)),
                    )
                )
        return rows

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, `schema` first; sizes and numbers are entries of their own.
        Numbers that JSON cannot say are null."""
        report: dict[str, Any] = {"schema": SCHEMA}
        report |= {name: getattr(self, name) for name in ("passed", "right", "clean", "proved")}
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("artifact", "place", "sizes", "numbers"):
            del fields[name]
        plain: dict[str, Any] = _json(report | fields | {**self.sizes, **self.numbers})
        plain["coverage"] = self.coverage.to_json() if self.coverage else None
        for run, entry in zip(self.runs, plain["runs"], strict=True):
            del entry["executions"]
            for finding, found in zip(run.findings, entry["findings"], strict=True):
                found["text"] = finding.render()
        return plain


def each_defect(findings: Sequence[LocatedFinding]) -> tuple[LocatedFinding, ...]:
    """Each defect once, as it was found first."""
    unique = {(f.kind, f.at.pc, f.other and f.other.pc): f for f in reversed(findings)}
    return tuple(reversed(unique.values()))


def shown_size(size: Size, most: int = 8) -> str:
    """A size as reports show it: of a list its first `most` numbers."""
    if isinstance(size, int):
        return str(size)
    shown = ",".join(str(number) for number in size[:most])
    return shown if len(size) <= most else f"{shown},… ({len(size)} in all)"


def shown_ratio(ratio: float) -> str:
    """The error before the output's rounding, of what is allowed. 0: the output is the very number
    that the exact one rounds to, which is not to say that nothing was compared."""
    return "< 1 ulp" if ratio == 0 else f"{ratio:.3f}"


def _described(c: Comparison, place: str) -> str:
    w = c.worst
    nans = f", {c.nans} of them NaN" if c.nans else ""
    undecided = f"; {c.undecided} waves had too many close votes to follow" if c.undecided else ""
    return (
        f"{c.failures} of {c.elements} elements are outside the {c.oracle} oracle's bound{nans}; "
        f"worst at {place}: {w.got:.6g} instead of {w.expected:.6g}, {w.ratio:.3g} times the bound "
        f"of {w.bound:.3g}{undecided}"
    )


def _json(value: Any) -> Any:
    """Dataclasses and structs as objects, numbers that are not finite as null."""
    if isinstance(value, msgspec.Struct):
        return {name: _json(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
