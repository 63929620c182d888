"""Judging survivors for gfx950: the emulator with its sanitizer, both oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzzed import Call, Case

from mlagen.artifact import Artifact
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.mutants import make_inputs, tile_call
from mlagen.errors import MlagenError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.launch import EmulatedLauncher
from mlagen.launch_findings import findings_of
from mlagen.problem.expected import Expected, compare
from mlagen.verify import kind_of
from mlagen.verify.run import trial_of

EARLIEST_OF = 3  # of so many calls one runs in mode earliest too
CONFIGS: dict[str, Any] = {"MhaProblem": MhaConfigV2, "MlaProblem": MlaConfigV2}


@dataclass(frozen=True)
class Trial:
    """One run and its oracles; `early`: in mode earliest as well, for the same bits."""

    call: Call
    run: Callable[[Artifact, Any], Any]
    oracles: tuple[Expected, ...]
    early: bool


def trials(case: Case, artifact: Artifact) -> list[Trial]:
    """The case's calls with their oracles."""
    return [_trial(artifact, call, not n % EARLIEST_OF) for n, call in enumerate(case.calls)]


def _trial(artifact: Artifact, call: Call, early: bool) -> Trial:
    kind, problem = kind_of(artifact), artifact.manifest.problem
    if call.tiles is not None:
        config = CONFIGS[artifact.manifest.problem_type].of(problem, facts_of(artifact))
        made: Any = kind
        inputs = make_inputs(
            config, made.kernel_type.inputs_type, tile_call(call.tiles, call.missing)
        )
    elif "partials" in call.shape and "rows" in call.shape:
        from reduce_cases import grouped

        config = MlaReduceConfig.from_fields(problem)
        inputs = grouped(config, call.shape["partials"], call.shape["rows"], data=call.data)
    else:
        inputs = kind.inputs(kind.fields(artifact), data=call.data, seed=0, **call.shape)
    trial = trial_of(artifact, inputs, thin=False)
    return Trial(call, trial.run, tuple(trial.oracles()), early)


def wrong(found: list[Trial], artifact: Artifact, doing: Callable[[str], None]) -> str:
    """What emulator, sanitizer or oracle hold against a kernel; nothing: it is right."""
    for trial in found:
        bits: dict[str, bytes] = {}
        for mode in ("latest", "earliest")[: 1 + trial.early]:
            where = f"{trial.call}, mode {mode}"
            doing(f"run {where}")
            for what in _run(trial, artifact, mode, bits):
                return f"{where}: {what}"
    return ""


def _run(trial: Trial, artifact: Artifact, mode: Any, bits: dict[str, bytes]) -> Iterator[str]:
    """All that is wrong with a run; `bits`: those of the runs before."""
    try:
        made, report = trial.run(artifact, EmulatedLauncher(mode=mode, threads=1))
    except MlagenError as error:  # no end, or what the emulator does not model
        yield f"{type(error).__name__}: {error}"
        return
    outputs = made if isinstance(made, dict) else {"o": made}
    for oracle in trial.oracles:
        found = compare(oracle, outputs[oracle.output])
        if not found.passed:
            yield (
                f"{found.failures} of {found.elements} elements are wrong by the "
                f"{found.oracle} oracle, {found.nans} of them NaN"
            )
    for finding in findings_of(artifact, report):
        yield f"sanitizer: {finding.render()}"
    for name, array in outputs.items():
        raw = np.ascontiguousarray(array).tobytes()
        if bits.setdefault(name, raw) != raw:
            yield "other bits than in mode latest"
