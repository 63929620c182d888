"""The base of all families: what tools may ask, and how a family refuses what it does not bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.family.benchmark import Benchmark
from mlagen.family.kinds import ProblemKind
from mlagen.family.mutants import MutantInputs
from mlagen.family.workload import Workloads
from mlagen.targets.registry import MODELLED

if TYPE_CHECKING:
    from mlagen.launch import Launcher

# Makes the artifact of another kernel, by name and fields, where a call launches a second one.
Builder = Callable[[str, Mapping[str, Any]], Artifact]


class Family:
    """A family of kernels. Its methods import what they hand out, so that naming a family loads
    nothing.

    `name` is what the problem classes' `family` says. A family of a user's overrides what it
    brings; the rest is refused by name.
    """

    name: str

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """The artifact as a callable. `build`: makes the artifacts of other kernels that a call
        needs besides; without it such calls are not split. ConfigError: there is no callable."""
        raise ConfigError(
            f"{artifact.manifest.kernel} solves a {artifact.manifest.problem_type}, which the "
            f"family {self.name} has no callable for",
            hint="launch it through mlagen.launch",
        )

    def kind(self, problem_type: str) -> ProblemKind:
        """What `mlagen verify` judges a problem class by. UnsupportedError: nothing."""
        raise UnsupportedError(
            f"the family {self.name} brings no inputs and oracles of a {problem_type}"
        )

    def workloads(self, problem_type: str, build: Builder) -> Workloads | None:
        """What makes calls to be timed on a device, and by `build` the other kernels that they
        launch; None: calls of its kind, as `mlagen verify` makes them."""
        return None

    def benchmark(self, artifact: Artifact) -> Benchmark:
        """What `mlagen bench` times of the artifact's problem. ConfigError: nothing."""
        kernel, target = artifact.manifest.kernel, artifact.manifest.target
        hint = f"`mlagen simulate` predicts how fast a {target} kernel will be"
        raise ConfigError(
            f"{kernel} ({target}) has no benchmark: the family {self.name} brings none",
            hint=hint if target in MODELLED else None,
        )

    def mutants(self, artifact: Artifact) -> MutantInputs | None:
        """On what `mlagen mutate` runs mutants of waits, barriers, nops and swizzles; None: on the
        calls that reach all of the code, as the kind knows them. UnsupportedError: neither would
        show such a defect."""
        return None
