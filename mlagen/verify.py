"""An artifact against its oracles: run in the emulator, every element compared, defects located.

Two oracles (`problem.mha_exact`, `problem.mha_rounded`) judge each run, and each run is made once
for every completion mode of asynchronous transfers: a kernel that waits for what it uses gives the
same bits in all of them.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError, FindingsError, MlagenError, WrongResultError
from mlagen.launch import EmulatedLauncher, Launcher
from mlagen.locate import LocatedFinding
from mlagen.ops.findings import findings_error, findings_of
from mlagen.ops.mha import MhaKernel, config_of
from mlagen.problem import Comparison, Expected, MhaInputs, compare, exact, rounded
from mlagen.testdata import mha_inputs

SCHEMA = "mlagen.verify/1"

Mode = Literal["latest", "earliest", "random"]
MODES: tuple[Mode, ...] = ("latest", "earliest", "random")


@dataclass(frozen=True, slots=True)
class ModeReport:
    """One run. `instructions`: executed by waves, in all and by mnemonic."""

    mode: str
    comparisons: tuple[Comparison, ...]  # one an oracle
    findings: tuple[LocatedFinding, ...]
    same_bits: bool  # as the first run's output
    wave_instructions: int
    counts: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found out. `passed` is the verdict; tables and JSON show why."""

    kernel: str
    target: str
    problem: Mapping[str, Any]
    batch: int
    seq_len: int
    num_keys: int
    start_pos: int
    scale: float
    data: str
    seed: int
    proved: bool
    proof_reasons: tuple[str, ...]
    runs: tuple[ModeReport, ...]
    oracle_seconds: float
    artifact: Artifact

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
    def passed(self) -> bool:
        """Right, clean, and proved when it was built."""
        return self.right and self.clean and self.proved

    @property
    def findings(self) -> tuple[LocatedFinding, ...]:
        """The findings of all runs, each defect once."""
        unique = {
            (f.kind, f.at.pc, f.other.pc if f.other else None): f
            for run in reversed(self.runs)
            for f in reversed(run.findings)
        }
        return tuple(reversed(unique.values()))

    def error(self) -> MlagenError | None:
        """Why the artifact did not pass, with the exit code of that; None when it passed."""
        worst = self.worst()
        if not self.right:
            return WrongResultError(f"{self.kernel}: {_described(worst)}")
        if self.findings:
            return findings_error(self.artifact, self.findings)
        for run in self.runs:
            if not run.same_bits:
                return FindingsError(
                    f"{self.kernel}: the output of mode {run.mode} has other bits than that of "
                    f"mode {self.runs[0].mode}: a result depends on when a transfer completes"
                )
        if not self.proved:
            return FindingsError(
                f"{self.kernel} is unproved: " + "; ".join(self.proof_reasons or ("no reasons",)),
                hint="its output was right on this data, which proves nothing",
            )
        return None

    def worst(self) -> Comparison:
        """The comparison with the largest ratio of error to bound."""
        comparisons = [c for run in self.runs for c in run.comparisons]
        return max(comparisons, key=lambda c: (c.failures > 0, c.max_ratio))

    # ---- rows for whoever prints ------------------------------------------------------------

    def facts(self) -> list[tuple[str, str]]:
        """Name and value, one a line."""
        instructions = self.runs[0].wave_instructions
        seconds = ", ".join(f"{run.mode} {run.seconds:.2f} s" for run in self.runs)
        return [
            ("kernel", f"{self.kernel} for {self.target}"),
            ("problem", ", ".join(f"{name}={value}" for name, value in self.problem.items())),
            (
                "shape",
                f"batch {self.batch}, seq_len {self.seq_len}, num_keys {self.num_keys}, "
                f"start_pos {self.start_pos}",
            ),
            ("data", f"{self.data}, seed {self.seed}, scale {self.scale:.6g}"),
            ("proof", "proved" if self.proved else "UNPROVED: " + "; ".join(self.proof_reasons)),
            ("executed", f"{instructions} wave instructions in each run"),
            ("emulated", seconds),
            ("oracles", f"{self.oracle_seconds:.2f} s"),
            ("outputs", f"{'right' if self.right else 'WRONG'} by both oracles"),
            ("sanitizer", self._sanitizer()),
            ("verdict", "passed" if self.passed else "FAILED"),
        ]

    def _sanitizer(self) -> str:
        if self.clean:
            modes = ", ".join(run.mode for run in self.runs)
            return f"clean; the same bits in modes {modes}" if len(self.runs) > 1 else "clean"
        differing = [run.mode for run in self.runs if not run.same_bits]
        count = len(self.findings)
        parts = [f"{count} finding{'s' if count > 1 else ''}"] if count else []
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
                f"{c.max_ratio:.3f}",
                f"batch {c.worst.batch}, row {c.worst.row}, head {c.worst.head}, "
                f"depth {c.worst.depth}",
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
                        f"{max(h.max_ratio for h in mine):.3f}",
                    )
                )
        return rows

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, `schema` first. Numbers that JSON cannot say are null."""
        report = {"schema": SCHEMA}
        report |= {name: getattr(self, name) for name in ("passed", "right", "clean")}
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["artifact"]
        plain: dict[str, Any] = _json(report | fields)
        for run, entry in zip(self.runs, plain["runs"], strict=True):
            for finding, found in zip(run.findings, entry["findings"], strict=True):
                found["text"] = finding.render()
        return plain


def verify(
    artifact: Artifact,
    *,
    batch: int = 1,
    seq_len: int = 512,
    num_keys: int | None = None,
    start_pos: int = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
    modes: Sequence[Mode] = ("latest", "earliest"),
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Runs `artifact` on made-up data (`testdata`) and judges it; see `verify_inputs`.

    `num_keys` is `start_pos + seq_len` where it is not given.
    """
    inputs = mha_inputs(
        config_of(artifact),
        batch=batch,
        seq_len=seq_len,
        num_keys=num_keys,
        start_pos=start_pos,
        data=data,
        seed=seed,
        scale=scale,
    )
    return verify_inputs(artifact, inputs, data=data, seed=seed, modes=modes, progress=progress)


def verify_inputs(
    artifact: Artifact,
    inputs: MhaInputs,
    *,
    data: str = "given",
    seed: int = 0,
    modes: Sequence[Mode] = ("latest", "earliest"),
    progress: Callable[[int, int], None] | None = None,
    launcher: Callable[[Mode], Launcher] | None = None,
) -> VerifyReport:
    """Runs `artifact` once a mode and holds each output against both oracles.

    `seed` also draws the completion times of mode "random". Unproved artifacts are run too: the
    report says that they are. `launcher` makes what runs a mode; the emulator with its sanitizer
    where it is not given. Raises ConfigError for inputs that the kernel cannot serve; what is wrong
    with the kernel is in the report.
    """
    if not modes or set(modes) - set(MODES):
        raise ConfigError(f"modes {list(modes)}", hint=f"one or more of {', '.join(MODES)}")

    def emulator(mode: Mode) -> Launcher:
        return EmulatedLauncher(mode=mode, seed=seed, allow_unproved=True, progress=progress)

    started = time.perf_counter()
    oracles = (exact(inputs).expected, rounded(inputs))
    oracle_seconds = time.perf_counter() - started
    runs: list[ModeReport] = []
    first: npt.NDArray[Any] | None = None
    for mode in modes:
        run = MhaKernel(artifact, (launcher or emulator)(mode)).run(inputs)
        same = first is not None and np.array_equal(_bits(first), _bits(run.output))
        emulation = run.report.emulation
        runs.append(
            ModeReport(
                mode=mode,
                comparisons=runs[0].comparisons if same else _compared(oracles, run.output),
                findings=findings_of(artifact, run.report),
                same_bits=same or first is None,
                wave_instructions=emulation.wave_instructions if emulation else 0,
                counts=dict(emulation.counts) if emulation else {},
                seconds=run.report.seconds,
            )
        )
        first = run.output if first is None else first
    manifest = artifact.manifest
    return VerifyReport(
        kernel=manifest.kernel,
        target=manifest.target,
        problem=manifest.problem,
        batch=inputs.batch,
        seq_len=inputs.seq_len,
        num_keys=inputs.keys,
        start_pos=inputs.start_pos,
        scale=inputs.scale,
        data=data,
        seed=seed,
        proved=manifest.proved,
        proof_reasons=manifest.proof.reasons,
        runs=tuple(runs),
        oracle_seconds=oracle_seconds,
        artifact=artifact,
    )


def _compared(oracles: Sequence[Expected], output: npt.NDArray[Any]) -> tuple[Comparison, ...]:
    return tuple(compare(oracle, output) for oracle in oracles)


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8)


def _described(c: Comparison) -> str:
    w = c.worst
    nans = f", {c.nans} of them NaN" if c.nans else ""
    undecided = f"; {c.undecided} waves had too many close votes to follow" if c.undecided else ""
    return (
        f"{c.failures} of {c.elements} elements are outside the {c.oracle} oracle's bound{nans}; "
        f"worst at batch {w.batch}, row {w.row}, head {w.head}, depth {w.depth}: {w.got:.6g} "
        f"instead of {w.expected:.6g}, {w.ratio:.3g} times the bound of {w.bound:.3g}{undecided}"
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
