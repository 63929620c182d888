"""Mutants of a family that brings no inputs of its own: on the calls that `mlagen verify` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlagen.artifact import Artifact
from mlagen.family import MutantCall, MutantInputs, Trial
from mlagen.launch import EmulatedLauncher
from mlagen.verify import kind_of
from mlagen.verify.run import DATA, trial_of


class CoveringInputs(MutantInputs):
    """The calls that reach all code. Of those that execute every instruction equally often, which
    differ in sizes and data alone, the first is run in all modes."""

    def __init__(self, artifact: Artifact) -> None:
        kind = kind_of(artifact)
        self._trials: dict[MutantCall, Trial] = {}
        costs: dict[MutantCall, int] = {}
        known: list[Mapping[int, int]] = []
        for call in kind.covering(artifact).calls:
            data = call.data or DATA
            inputs = kind.made(artifact, data=data, seed=0, **call.shape)
            trial = trial_of(artifact, inputs, thin=call.thin)
            launcher = EmulatedLauncher(
                workgroups=trial.workgroups, allow_unproved=True, sanitize=False
            )
            emulation = trial.run(artifact, launcher)[1].emulation
            assert emulation is not None
            sizes = [f"{name} {size}" for name, size in call.shape.items()]
            made = MutantCall(", ".join([*sizes, data]), once=emulation.executions in known)
            known.append(emulation.executions)
            self._trials[made], costs[made] = trial, emulation.wave_instructions
        self._calls = tuple(sorted(self._trials, key=lambda call: (call.once, costs[call])))

    def calls(self, tiles: Sequence[int]) -> tuple[MutantCall, ...]:
        """All: which lines each executes is known better than which tiles it walks."""
        return self._calls

    def trial(self, call: MutantCall, copies: int = 1) -> Trial:
        return self._trials[call]
