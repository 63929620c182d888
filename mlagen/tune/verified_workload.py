"""Whatever `mlagen.verify` can judge, on an AMD GPU: against both oracles, then timed.

Inputs and oracles are those of `mlagen verify`, made on the host and carried to the GPU by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mlagen.artifact import Artifact
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.errors import UnsupportedError, WrongResultError
from mlagen.family import ProblemKind, Trial
from mlagen.launch import LaunchReport, PreparedLaunch, gpu_launcher
from mlagen.problem.expected import compare
from mlagen.tune.call_bytes import bytes_of

_FEW = 2  # workgroups whose rows are compared where a call has many: the exact oracle is in float64


@dataclass
class Carried:
    """A Launcher for arrays of the host on the GPU of `target`: carries them there, launches and
    carries outputs back. `only_prepares`: keeps what it would launch in `prepared`, and its tensors
    with it."""

    target: str
    only_prepares: bool = False
    prepared: list[PreparedLaunch] = field(default_factory=list)

    @cached_property
    def _launcher(self) -> Any:
        return gpu_launcher(self.target)

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, Any],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> LaunchReport:
        """See `mlagen.launch.Launcher`."""
        there = {name: to_gpu(array) for name, array in tensors.items()}
        made = self._launcher.prepare(artifact, tensors=there, scalars=scalars, sizes=sizes)
        if self.only_prepares:
            self.prepared.append(made)
        else:
            made()
            for arg in artifact.manifest.args:
                if arg.tensor and arg.access == "write":
                    tensors[arg.tensor][...] = to_host(there[arg.tensor])
        return LaunchReport(self._launcher.kind, made.grid, made.block, 0.0)


@dataclass(frozen=True, slots=True)
class VerifiedWorkloads:
    """Makes workloads of a kind of problem that `mlagen verify` knows."""

    kind: ProblemKind

    @property
    def sizes(self) -> tuple[str, ...]:
        return self.kind.sizes

    @property
    def lists(self) -> tuple[str, ...]:
        return self.kind.lists

    def beside(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """None: a call launches the artifact alone. UnsupportedError for a persistent one."""
        if self.kind.has_planned_work(artifact):
            raise UnsupportedError(
                f"nothing here times {artifact.manifest.kernel} with a persistent grid on a GPU",
                hint="--cost predicted, or --knob grid=static",
            )
        return ()

    def workload(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        beside: Sequence[Artifact] = (),
    ) -> VerifiedWorkload:
        return VerifiedWorkload(self.kind, problem, shape)


class VerifiedWorkload:
    """One call: `shape` are sizes of the kind's, as `mlagen verify` takes them."""

    def __init__(
        self, kind: ProblemKind, problem: Mapping[str, Any], shape: Mapping[str, Any]
    ) -> None:
        self.kind, self.problem, self.shape = kind, problem, shape

    @cached_property
    def _inputs(self) -> Any:
        return self._made(self.shape, 0)

    def _made(self, shape: Mapping[str, Any], seed: int) -> Any:
        return self.kind.inputs(self.problem, data="realistic", seed=seed, **shape)

    @property
    def bytes(self) -> int:
        """That a call reads, once."""
        return bytes_of(self._inputs)

    def check(self, artifact: Artifact, seed: int) -> None:
        """Two runs of a call whose sizes fill no tile, then this one, of which the rows of
        some workgroups are compared. Outputs are NaN before."""
        odd = self.kind.trial(self._made(self.kind.uneven, seed)).planned(artifact)
        self._judge(artifact, odd, runs=2)
        whole = self.kind.trial(self._inputs).planned(artifact)
        self._judge(artifact, whole.sampled(_FEW, seed) if whole.samples else whole)

    def _judge(self, artifact: Artifact, trial: Trial, runs: int = 1) -> None:
        launcher, oracles = Carried(artifact.manifest.target), trial.oracles()
        for _ in range(runs):
            made = trial.run(artifact, launcher)[0]
            outputs = made if isinstance(made, Mapping) else {"o": made}
            for oracle in oracles:
                found = compare(oracle, outputs[oracle.output])
                if not found.passed:
                    sizes = ", ".join(f"{name}={size}" for name, size in trial.sizes.items())
                    raise WrongResultError(
                        f"{sizes}: {found.failures} of {found.elements} numbers of {oracle.output} "
                        f"({found.nans} NaN) are outside the {found.oracle} oracle's bounds"
                    )

    def calls(self, artifact: Artifact, copies: int) -> list[Callable[[], Any]]:
        trial = self.kind.trial(self._inputs).planned(artifact)
        carried = Carried(artifact.manifest.target, only_prepares=True)
        for _ in range(copies):
            trial.run(artifact, carried)
        return list(carried.prepared)
