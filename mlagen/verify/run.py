"""Runs an artifact once a mode and holds each output against the oracles of its kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.family import ProblemKind, Trial, family_of
from mlagen.launch import EmulatedLauncher, Launcher, Mode
from mlagen.launch_findings import findings_of
from mlagen.problem.expected import Comparison, Expected, compare
from mlagen.targets.registry import EMULATED
from mlagen.verify.report import ModeReport, VerifyReport

Outputs = Mapping[str, npt.NDArray[Any]]  # by `Expected.output`
DATA = "realistic"  # the kind of made-up inputs where none is asked for
MODES: tuple[Mode, ...] = ("latest", "earliest", "random")


def verify(
    artifact: Artifact,
    *,
    data: str = DATA,
    seed: int = 0,
    modes: Sequence[Mode] = ("latest", "earliest"),
    sample: int | None = None,
    thin: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **shape: Any,
) -> VerifyReport:
    """Runs `artifact` on made-up data and judges it; see `verify_inputs`.

    `shape`: the sizes that the artifact's kind of problem names (`kind_of(artifact).sizes`).
    """
    kind = kind_of(artifact)
    inputs = kind.made(artifact, data=data, seed=seed, **shape)
    report = verify_inputs(
        artifact, inputs, seed=seed, modes=modes, sample=sample, thin=thin, progress=progress
    )
    return replace(report, data=data)


def verify_inputs(
    artifact: Artifact,
    inputs: Any,
    *,
    seed: int = 0,
    modes: Sequence[Mode] = ("latest", "earliest"),
    sample: int | None = None,
    thin: bool = False,
    progress: Callable[[int, int], None] | None = None,
    launcher: Callable[[Mode], Launcher] | None = None,
) -> VerifyReport:
    """Runs `artifact` once a mode on the inputs of its kind and holds each output against the
    oracles.

    `seed` also draws the completion times of mode "random". `sample`: run that many workgroups
    only, drawn from `seed`, and compare their rows; the report says so. `thin`: run as few
    workgroups as run all code that these inputs reach, where the kind can say which. Unproved
    artifacts are run too: the report says that they are. `launcher` makes what runs a mode; the
    emulator with its sanitizer where it is not given. Raises ConfigError for inputs that the kernel
    cannot serve; what is wrong with the kernel is in the report.
    """
    if not modes or set(modes) - set(MODES):
        raise ConfigError(f"modes {list(modes)}", hint=f"one or more of {', '.join(MODES)}")

    trial = trial_of(artifact, inputs, thin=thin)
    if sample is not None:
        if not trial.samples:
            raise ConfigError(
                f"sample={sample}: {artifact.manifest.kernel} solves a "
                f"{artifact.manifest.problem_type}, whose workgroups cannot be compared one by one",
                hint="leave out the sample: all workgroups are run",
            )
        if launcher is not None:
            raise ConfigError(
                f"sample={sample}: the emulator alone runs some of a grid's workgroups",
                hint="leave out the launcher, or the sample",
            )
        trial = trial.sampled(sample, seed)

    def emulator(mode: Mode) -> Launcher:
        return EmulatedLauncher(
            mode=mode,
            seed=seed,
            workgroups=trial.workgroups,
            allow_unproved=True,
            progress=progress,
        )

    started = time.perf_counter()
    oracles = trial.oracles()
    oracle_seconds = time.perf_counter() - started
    runs = _runs(artifact, trial, oracles, modes, launcher or emulator)
    manifest = artifact.manifest
    return VerifyReport(
        kernel=manifest.kernel,
        target=manifest.target,
        problem=manifest.problem,
        sizes=dict(trial.sizes),
        numbers=dict(trial.numbers),
        data="given",
        seed=seed,
        proof=manifest.proof,
        runs=runs,
        oracle_seconds=oracle_seconds,
        artifact=artifact,
        place=trial.place,
        sample=trial.sample,
    )


def kind_of(artifact: Artifact) -> ProblemKind:
    """The kind of the artifact's problem. ConfigError when nothing that was loaded brings it, or
    when nothing here can run the code."""
    manifest = artifact.manifest
    if manifest.target not in EMULATED:
        raise ConfigError(
            f"{manifest.kernel} is {manifest.target} machine code, which only its GPU runs: there "
            f"is no emulator for it",
            hint="launch it on the device (mlagen.build returns it as a callable on its tensors)",
        )
    return family_of(artifact).kind(manifest.problem_type)


def _runs(
    artifact: Artifact,
    trial: Any,
    oracles: Sequence[Expected],
    modes: Sequence[Mode],
    launcher: Callable[[Mode], Launcher],
) -> tuple[ModeReport, ...]:
    """A report a mode. Outputs of the same bits are compared with the oracles once."""
    runs: list[ModeReport] = []
    first: Outputs | None = None
    for mode in modes:
        made, report = trial.run(artifact, launcher(mode))
        outputs: Outputs = made if isinstance(made, Mapping) else {"o": made}
        same = first is not None and all(
            np.array_equal(_bits(first[name]), _bits(array)) for name, array in outputs.items()
        )
        emulation = report.emulation
        runs.append(
            ModeReport(
                mode=mode,
                comparisons=runs[0].comparisons if same else _compared(oracles, outputs),
                findings=findings_of(artifact, report),
                same_bits=same or first is None,
                wave_instructions=emulation.wave_instructions if emulation else 0,
                counts=dict(emulation.counts) if emulation else {},
                executions=dict(emulation.executions) if emulation else {},
                seconds=report.seconds,
            )
        )
        first = outputs if first is None else first
    return tuple(runs)


def trial_of(artifact: Artifact, inputs: Any, *, thin: bool) -> Trial:
    """The trial of these inputs as it runs: divided as the artifact divides work, and with few
    workgroups where `thin` asks for them."""
    trial = kind_of(artifact).trial(inputs).planned(artifact)
    return trial.thinned(artifact) if thin else trial


def _compared(oracles: Sequence[Expected], outputs: Outputs) -> tuple[Comparison, ...]:
    return tuple(compare(oracle, outputs[oracle.output]) for oracle in oracles)


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8)
