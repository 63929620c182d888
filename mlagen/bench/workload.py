"""A benchmark's work as a call to tune by: its tensors and its judge are the benchmark's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlagen.artifact import Artifact
from mlagen.errors import WrongResultError
from mlagen.family.base import Builder

Second = tuple[str, Mapping[str, Any]]  # another kernel that a call launches: its name and fields


def built_all(build: Builder, seconds: Sequence[Second]) -> tuple[Artifact, ...]:
    """The artifacts of these kernels."""
    return tuple(build(name, fields) for name, fields in seconds)


class BenchedWorkload(ABC):
    """A `Workload` of a work, a frozen dataclass with a `seed`.

    `seconds`: other kernels that a call launches; `beside`: their artifacts in that order, or none.
    What is missing, `build` makes when it is asked for.
    """

    def __init__(
        self,
        work: Any,
        build: Builder,
        seconds: Sequence[Second] = (),
        beside: Sequence[Artifact] = (),
    ) -> None:
        self.work, self._build = work, build
        self._cases: list[Any] = []
        self._built = {
            _key(*second): artifact for second, artifact in zip(seconds, beside, strict=False)
        }

    @property
    def bytes(self) -> int:
        """That a call reads and writes, once."""
        return int(self.work.bytes)

    @abstractmethod
    def lab(self, artifact: Artifact) -> Any:
        """The benchmark's lab of the artifact, which takes `second` to build other kernels by."""

    @abstractmethod
    def check_small(self, lab: Any, seed: int) -> None:
        """Small calls, at which the code differs. WrongResultError: one is wrong."""

    @abstractmethod
    def prepared(self, lab: Any, cases: Sequence[Any]) -> list[Callable[[], Any]]:
        """The call on the tensors of each case."""

    def second(self, name: str, fields: Mapping[str, Any]) -> Artifact:
        """The artifact of another kernel."""
        key = _key(name, fields)
        if key not in self._built:
            self._built[key] = self._build(name, fields)
        return self._built[key]

    def _case(self, lab: Any, number: int) -> Any:
        """Tensors of the call, made once: all variants run on the same."""
        while len(self._cases) <= number:
            self._cases.append(lab.case(replace(self.work, seed=len(self._cases))))
        return self._cases[number]

    def check(self, artifact: Artifact, seed: int) -> None:
        """WrongResultError: small calls, or this one, are outside the oracles' bounds."""
        lab = self.lab(artifact)
        self.check_small(lab, seed)
        case = self._case(lab, 0)
        output = lab.ours(case)()
        lab.wait()
        wrong = lab.judge(case).ours(output).wrong
        if wrong:
            raise WrongResultError(f"{self.work}: {wrong}")

    def calls(self, artifact: Artifact, copies: int) -> list[Callable[[], Any]]:
        """The call, prepared, once for each copy of its buffers."""
        lab = self.lab(artifact)
        return self.prepared(lab, [self._case(lab, number) for number in range(copies)])


def _key(name: str, fields: Mapping[str, Any]) -> tuple[Any, ...]:
    return name, *sorted(fields.items())
