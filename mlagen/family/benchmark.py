"""What `mlagen bench` asks of a family: calls, their tensors, our call, a judge, and peers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from mlagen.errors import ConfigError
from mlagen.family.peers import Peer


class Work(Protocol):
    """The work of one call, as it is counted: a problem and the sizes of a call. Its text is its
    name in tables."""

    @property
    def flop(self) -> int: ...

    @property
    def bytes(self) -> int:
        """What a call reads and writes, at least."""

    def to_fields(self) -> dict[str, Any]:
        """Problem, sizes and seed as plain values, for JSON."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`error`: of an output, |got - exact| / |exact| as norms. `wrong`: why it is not right, or
    ""."""

    error: float
    wrong: str = ""


class CaseJudge(Protocol):
    """Knows what is right for the tensors of a case, or for some rows of it."""

    def ours(self, output: Any) -> Judgement:
        """What our call returned, by the bounds of both oracles."""

    def peer(self, output: Any) -> Judgement:
        """What a peer's call returned. Its arithmetic is not ours, so a relative error is asked."""


class DeviceClock(Protocol):
    """Marks in the order of the GPU's work."""

    def flush(self) -> None:
        """Replaces what the L2 cache holds."""

    def hold(self) -> None:
        """Keeps the GPU busy while calls are enqueued."""
        ...

    def mark(self) -> Any:
        """A mark after all work so far."""

    def wait(self) -> None:
        """Until the GPU has done everything."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two marks; waits for the second."""


class Lab(Protocol):
    """A machine with a GPU, and our kernel on it. What a case is, the family alone knows."""

    clock: DeviceClock

    def facts(self) -> dict[str, str]:
        """The device and the versions of what runs on it."""

    def ceilings(self) -> dict[str, tuple[Callable[[], Any], float, str]]:
        """What bounds every kernel: (call, amount, unit a second) by name."""

    def wait(self) -> None:
        """Until the GPU is idle. Raises what a kernel failed with."""

    def case(self, work: Any) -> Any:
        """The tensors of a `Work`, which all contenders share."""

    def ours(self, case: Any) -> Callable[[], Any]:
        """Our kernel, all checked and packed; its outputs are poisoned. It returns what the judge
        takes."""

    def judge(self, case: Any) -> CaseJudge:
        """Of the case's outputs."""


class Benchmark(ABC):
    """What is timed of one problem class, and beside what."""

    sizes: tuple[str, ...]  # of a call, as `--shape` takes them
    optional: tuple[str, ...] = ()  # those among them that a call can do without
    formulas: Mapping[str, str]  # how "flop" and "bytes" are counted, and "error" is taken
    peers: tuple[str, ...] = ()  # names, in the order of a report

    @abstractmethod
    def work(self, problem: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> Work:
        """One call of the problem whose fields are given. ConfigError for sizes it cannot have."""

    @abstractmethod
    def lab(self, kernel: Any) -> Lab:
        """The machine at hand with the family's callable. MissingError: it has no GPU."""

    def peer(self, name: str) -> Peer:
        """The one of that name among `peers`, not yet loaded."""
        raise NotImplementedError

    def works(
        self, problem: Mapping[str, Any], sizes: Mapping[str, Sequence[int]], *, seed: int = 0
    ) -> list[Work]:
        """Every combination of the sizes' values. ConfigError where a size is missing."""
        needed = [name for name in self.sizes if name not in self.optional]
        for name in needed:
            if not sizes.get(name):
                hint = " ".join(f"--shape {each}=SIZE" for each in needed)
                raise ConfigError(f"the size {name} is missing", hint=hint)
        names = [name for name in self.sizes if sizes.get(name)]
        return [
            self.work(problem, dict(zip(names, values, strict=True)), seed)
            for values in product(*(sizes[name] for name in names))
        ]

    def chosen(self, names: Sequence[str] | None) -> list[Peer]:
        """The peers of these names, or all. ConfigError for an unknown name."""
        for name in names or ():
            if name not in self.peers:
                known = ", ".join(self.peers) or "none"
                raise ConfigError(f"unknown peer {name!r}", hint=f"peers: {known}")
        return [self.peer(name) for name in (self.peers if names is None else dict.fromkeys(names))]
