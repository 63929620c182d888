"""What verification asks of a family: inputs that it makes up, and trials that judge an output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mlagen.errors import ConfigError
from mlagen.family.covering import Call, Covering

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher, LaunchReport
    from mlagen.problem.expected import Expected, Worst

Size = int | tuple[int, ...]  # one number, or one a sequence
Group = tuple[int, int, int]  # grid indices of a workgroup
Chosen = Callable[[Group], Sequence[Group]]  # some workgroups of a grid of so many


@dataclass(frozen=True, slots=True)
class Sample:
    """How many workgroups were run and compared, of how many."""

    workgroups: int
    of: int


@dataclass(frozen=True, slots=True)
class TileWalk:
    """What the longest loop of a call walks: so many tiles of the `size` that is called so, each
    of which holds `step` of it."""

    tiles: int
    size: str
    step: int


class Trial(ABC):
    """One call's inputs, with everything that judges what a kernel makes of them."""

    workgroups: Sequence[Group] | None = None  # those that run and are compared; None: all
    samples: bool = False  # whether `sampled` makes a trial of fewer workgroups

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, Size]:
        """What the run's shape is, by name, as reports show it."""

    @property
    def numbers(self) -> Mapping[str, float]:
        """Other numbers of the call that reports show."""
        return {}

    @property
    def walk(self) -> TileWalk | None:
        """The longest loop of the call, planned; None where nobody knows."""
        return None

    @property
    def sample(self) -> Sample | None:
        """How much of the call is run; None: all of it."""
        return None

    @abstractmethod
    def oracles(self) -> Sequence[Expected]:
        """What the output must be. The outputs of `run` are compared with each."""

    @abstractmethod
    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Array | Mapping[str, Array], LaunchReport]:
        """Run the artifact once: its output, in the oracles' four dimensions, and the report.
        Several outputs are a mapping by `Expected.output`.

        ConfigError for inputs that the kernel cannot serve, before anything is run.
        """

    @abstractmethod
    def place(self, worst: Worst) -> str:
        """Where an element lies, in the problem's words."""

    def sampled(self, count: int, seed: int) -> Self:
        """This call by some of its workgroups. Only where `samples`."""
        raise NotImplementedError

    def planned(self, artifact: Artifact) -> Self:
        """This call with the artifact's tiles, and its work divided as the artifact takes it."""
        return self

    def uncompared(self) -> Self:
        """This call where nobody looks at an output: none is poisoned before or merged after."""
        return self

    def thinned(self, artifact: Artifact) -> Self:
        """This call by fewer workgroups that still run all of the code."""
        return self


class ProblemKind(ABC):
    """Makes trials of one problem class."""

    sizes: tuple[str, ...]  # names of the whole numbers that `inputs` takes
    lists: tuple[str, ...] = ()  # those among them that also take several numbers
    data: tuple[str, ...] = ()  # the kinds of data that `inputs` takes
    uneven: ClassVar[Mapping[str, Any]] = {}  # sizes of a small call that fill no tile

    def fields(self, artifact: Artifact) -> Mapping[str, Any]:
        """What `inputs` is given of an artifact: its problem, and the knobs that inputs hang on."""
        return artifact.manifest.problem

    def has_planned_work(self, artifact: Artifact) -> bool:
        """Whether the artifact's workgroups take work that the host divides: one of them computes
        parts of many tiles, so that no sample of them is run, and a call is not launched alone."""
        return False

    @abstractmethod
    def inputs(self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any) -> Any:
        """Made-up inputs of the problem whose fields are given; the same arguments give the same
        bits. `shape` holds `sizes`, and whatever other numbers the kind knows; all have defaults.
        ConfigError for what it does not know or cannot make."""

    def made(self, artifact: Artifact, *, data: str, seed: int, **shape: Any) -> Any:
        """`inputs` of an artifact's problem. ConfigError for a seed that is none, and for a call
        that this machine has not the memory for."""
        if not 0 <= seed < 1 << 32:
            raise ConfigError(f"seed={seed} is not in 0 .. {(1 << 32) - 1}")
        try:
            return self.inputs(self.fields(artifact), data=data, seed=seed, **shape)
        except MemoryError as error:
            raise ConfigError(
                f"this machine has not the memory for such a call: {error}",
                hint="smaller sizes fit",
            ) from None

    def simulated(self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any) -> Any:
        """`made` for a call of which the cycle model looks at the workgroups that are `chosen` of
        its grid, and at no output: of the call's sizes, with realistic data where these workgroups
        read. Elsewhere are zeros that nobody has touched, which take no memory."""
        return self.made(artifact, data="realistic", seed=seed, **shape)

    @abstractmethod
    def trial(self, inputs: Any) -> Trial:
        """The trial of these inputs, made up or given by a caller."""

    def covering(self, artifact: Artifact) -> Covering:
        """The calls that reach all of an artifact's code; one with all defaults, unless the kind
        knows better."""
        return Covering((Call("", {}),))
