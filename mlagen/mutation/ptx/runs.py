"""On what mutants of PTX run: the calls of an artifact's kind of problem, or launch files."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.emulator import EmulationResult, Mode, Settings
from mlagen.emulator.launching import Files, LaunchFile, run_launch
from mlagen.family import MutantCall, Trial, family_of
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.covering import CoveringInputs
from mlagen.problem.expected import Expected, compare
from mlagen.verify import kind_of
from mlagen.verify.run import trial_of

Outputs = Mapping[str, npt.NDArray[Any]]
SEEDS = (1, 2)  # beside 0, of data for a mutant that survives


class Runs(ABC):
    """The calls of one kernel, each run as often as is asked."""

    problem: str  # for people

    @property
    @abstractmethod
    def calls(self) -> Sequence[MutantCall]:
        """The likeliest to show a defect first."""

    @property
    def more(self) -> Sequence[MutantCall]:
        """Calls of the same sizes on other data, for mutants of values that survive."""
        return ()

    @abstractmethod
    def run(
        self, call: MutantCall, text: str, mode: Mode, seed: int, limit: int | None
    ) -> tuple[Outputs, EmulationResult]:
        """Executes a text; `limit`: the instructions of a block."""

    def wrong(self, call: MutantCall, outputs: Outputs) -> str:
        """The oracle that refuses the outputs; "" where all take them, or there are none."""
        return ""

    @property
    def judged(self) -> bool:
        """Whether there are oracles. Without them other bits than the original's are wrong."""
        return False


class ArtifactRuns(Runs):
    """The calls that reach all code of an artifact, with their oracles."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.problem = ", ".join(f"{n}={value}" for n, value in artifact.manifest.problem.items())
        own = family_of(artifact).mutants(artifact)
        self._inputs = CoveringInputs(artifact) if own is None else own
        self._calls = tuple(self._inputs.calls(()))
        self._trials: dict[MutantCall, Trial] = {}
        self._oracles: dict[MutantCall, Sequence[Expected]] = {}

    @property
    def calls(self) -> Sequence[MutantCall]:
        return self._calls

    @property
    def more(self) -> Sequence[MutantCall]:
        kind = kind_of(self.artifact)
        found = []
        for number, call in enumerate(kind.covering(self.artifact).calls):
            own = call.data or kind.data[0]
            for data, seed in [*((d, 0) for d in kind.data), *((own, s) for s in SEEDS)]:
                if (data, seed) == (own, 0):
                    continue
                sizes = ", ".join(f"{name} {size}" for name, size in call.shape.items())
                made = MutantCall(f"{sizes}; {data}, seed {seed}, call {number}", once=True)
                if made not in self._trials:
                    inputs = kind.made(self.artifact, data=data, seed=seed, **call.shape)
                    self._trials[made] = trial_of(self.artifact, inputs, thin=call.thin)
                found.append(made)
        return found

    def _trial(self, call: MutantCall) -> Trial:
        return self._trials.get(call) or self._inputs.trial(call)

    def run(
        self, call: MutantCall, text: str, mode: Mode, seed: int, limit: int | None
    ) -> tuple[Outputs, EmulationResult]:
        trial = self._trial(call)
        launcher = EmulatedLauncher(
            mode=mode,
            seed=seed,
            workgroups=trial.workgroups,
            threads=1,
            allow_unproved=True,
            max_instructions=limit,
        )
        made, report = trial.run(dataclasses.replace(self.artifact, text=text), launcher)
        assert report.emulation is not None
        return made if isinstance(made, Mapping) else {"o": made}, report.emulation

    def wrong(self, call: MutantCall, outputs: Outputs) -> str:
        if call not in self._oracles:
            self._oracles[call] = tuple(self._trial(call).oracles())
        failed = (o for o in self._oracles[call] if not compare(o, outputs[o.output]).passed)
        return next((f"{oracle.oracle} oracle" for oracle in failed), "")

    @property
    def judged(self) -> bool:
        return True


class LaunchRuns(Runs):
    """A call for each of some launch files, by name. All of their buffers are outputs."""

    def __init__(self, launches: Mapping[str, LaunchFile], files: Files) -> None:
        self._launches = {MutantCall(name): launch for name, launch in launches.items()}
        self.files = files
        sizes = [f"grid {one.grid}, block {one.block}" for one in launches.values()]
        self.problem = "; ".join(dict.fromkeys(sizes))

    @property
    def calls(self) -> Sequence[MutantCall]:
        return tuple(self._launches)

    def run(
        self, call: MutantCall, text: str, mode: Mode, seed: int, limit: int | None
    ) -> tuple[Outputs, EmulationResult]:
        settings = Settings(mode=mode, seed=seed, threads=1, max_instructions=limit)
        ran = run_launch(text, self._launches[call], settings, self.files)
        return ran.arrays, ran.result


def same_bits(one: Outputs, other: Outputs) -> bool:
    """Whether two runs left the same in all outputs."""
    return all(np.array_equal(_bits(one[name]), _bits(array)) for name, array in other.items())


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
