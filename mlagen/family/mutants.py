"""What mutation asks of a family: on what the mutants of an artifact run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.family.kinds import Trial


@dataclass(frozen=True, slots=True)
class MutantCall:
    """A call, by its name in reports. `once`: another call runs the same instructions in the same
    order on other values, so that one run, in mode latest, is enough here."""

    name: str
    once: bool = False

    def __str__(self) -> str:
        return self.name


class MutantInputs(ABC):
    """The calls on which mutants of one artifact run. Every tile must show in the outputs, and both
    sides of every branch must be taken: a defect that no call shows counts as none."""

    side_by_side: bool = False  # whether one trial holds several copies of a call

    @abstractmethod
    def calls(self, tiles: Sequence[int]) -> Sequence[MutantCall]:
        """Calls for code that runs where a workgroup walks these numbers of tiles, the likeliest to
        show a defect first. Those that do not execute a mutated line are left out later."""

    @abstractmethod
    def trial(self, call: MutantCall, copies: int = 1) -> Trial:
        """The call; where `side_by_side`, `copies` of it, each by a workgroup of its own on the
        same inputs, whose results follow one another in each output."""
