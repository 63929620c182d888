"""Kinds of problems that can be verified, by the name of their problem class.

A kind is what a problem brings to be judged by. Families bring those of the shipped ones; a
schedule's own file registers its own with `register(MyProblem, MyKind())`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem import Expected, Worst

Array = npt.NDArray[Any]
Size = int | tuple[int, ...]  # one number, or one a sequence


@dataclass(frozen=True, slots=True)
class Sample:
    """How many workgroups were run and compared, of how many."""

    workgroups: int
    of: int


class Trial(Protocol):
    """One call's inputs, with everything that judges what a kernel makes of them.

    A trial that can be run by some of its workgroups only has more: `sampled(count, seed)`, which
    makes such a trial, its `workgroups` (grid indices; None: all), and its `sample`. One that
    depends on how the artifact divides the work has `planned(artifact)`, which makes it. One that
    can be run by fewer workgroups that still run all of the code has `thinned(artifact)`.
    """

    @property
    def sizes(self) -> Mapping[str, Size]:
        """What the run's shape is, by name, as reports show it."""
        ...

    @property
    def numbers(self) -> Mapping[str, float]:
        """Other numbers of the call that reports show."""
        ...

    def oracles(self) -> Sequence[Expected]:
        """What the output must be. The outputs of `run` are compared with each."""
        ...

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Array | Mapping[str, Array], LaunchReport]:
        """Run the artifact once: its output, in the oracles' four dimensions, and the report.
        Several outputs are a mapping by `Expected.output`.

        ConfigError for inputs that the kernel cannot serve, before anything is run.
        """
        ...

    def place(self, worst: Worst) -> str:
        """Where an element lies, in the problem's words."""
        ...


class Kind(Protocol):
    """Makes trials of one problem class.

    A kind may have `lists`: the names among `sizes` that also take several numbers; `data`:
    the kinds of data that `inputs` takes; and `covering(artifact)`: the calls that reach all of an
    artifact's code (`Covering`).
    """

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the whole numbers that `inputs` takes."""
        ...

    def inputs(self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any) -> Any:
        """Made-up inputs of the problem whose fields are given; the same arguments give the same
        bits. `shape` holds `sizes`, and whatever other numbers the kind knows; all have defaults.
        ConfigError for what it does not know or cannot make."""
        ...

    def trial(self, inputs: Any) -> Trial:
        """The trial of these inputs, made up or given by a caller."""
        ...


_kinds: dict[str, Kind] = {}


def register(problem_type: type, kind: Kind) -> None:
    """Let `verify` judge artifacts that solve a `problem_type`. Manifests name it by its name."""
    _kinds[problem_type.__name__] = kind


def kind_named(problem_type: str) -> Kind | None:
    """The kind of the problem class of that name; None where nothing that was loaded brings it."""
    return _kinds.get(problem_type)


EMULATED = "gfx950"  # the target whose machine code runs without its hardware


def kind_of(artifact: Artifact) -> Kind:
    """The kind of the artifact's problem. ConfigError when nothing that was loaded brings it, or
    when nothing here can run the code."""
    manifest = artifact.manifest
    if manifest.target != EMULATED:
        raise ConfigError(
            f"{manifest.kernel} is {manifest.target} machine code, which only its GPU runs: there "
            f"is no emulator for it",
            hint="launch it on the device (mlagen.build returns it as a callable on its tensors)",
        )
    kind = kind_named(manifest.problem_type)
    if kind is None:
        raise ConfigError(
            f"{manifest.kernel} solves a {manifest.problem_type}, and nothing here knows its "
            f"inputs and oracles (known: {', '.join(sorted(_kinds))})",
            hint=f"name the file that registers it: --problem FILE.py "
            f"(it was built from {manifest.schedule_file})",
        )
    return kind
