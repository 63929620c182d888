"""What timing on a device asks of a family: one call, checked there and made ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mlagen.artifact import Artifact


class Workload(Protocol):
    """One call of a kind of problem on a device."""

    @property
    def bytes(self) -> int:
        """What a call reads, at least."""

    def check(self, artifact: Artifact, seed: int) -> None:
        """WrongResultError where outputs of small calls are outside the oracles' bounds, or those
        of this very call far from a float64 one."""

    def calls(self, artifact: Artifact, copies: int) -> list[Callable[[], Any]]:
        """The call, prepared, once for each copy of its buffers."""


class Workloads(Protocol):
    """Makes the workloads of one problem class."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes of a call."""

    @property
    def lists(self) -> tuple[str, ...]:
        """Those among them that take several numbers."""

    def beside(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """Other kernels that a call of the artifact launches, built once for all trials.
        UnsupportedError for an artifact that is not timed."""

    def workload(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        beside: Sequence[Artifact] = (),
    ) -> Workload:
        """The call of these fields and sizes; no device is touched before it is asked for more.
        ConfigError for sizes that no call has."""
