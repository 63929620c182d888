"""A gfx950 artifact with its mutants and their judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.mutation.gfx950 import ORDER
from mlagen.mutation.gfx950.barriers import barrier_mutants
from mlagen.mutation.gfx950.judging import Judge
from mlagen.mutation.gfx950.listing import Listing, read_listing
from mlagen.mutation.gfx950.mutant import Mutant
from mlagen.mutation.gfx950.swizzle import swizzle_mutants
from mlagen.mutation.gfx950.value_judge import ValueJudge
from mlagen.mutation.gfx950.value_mutants import value_mutants
from mlagen.mutation.gfx950.waits import nop_mutants, wait_mutants
from mlagen.mutation.subject import Subject
from mlagen.mutation.verdict import Verdict
from mlagen.verify import kind_of

CLASSES = (*ORDER, "values")


def make_mutants(listing: Listing, threads: int, classes: Iterable[str] = ORDER) -> list[Mutant]:
    """All mutants of some classes; `threads` a workgroup has. ConfigError for an unknown class."""
    makers: dict[str, Callable[[], Iterable[Mutant]]] = {
        "waits": lambda: wait_mutants(listing),
        "barriers": lambda: barrier_mutants(listing),
        "nops": lambda: nop_mutants(listing),
        "swizzle": lambda: swizzle_mutants(listing, threads),
        "values": lambda: value_mutants(listing),
    }
    wanted = list(classes)
    for name in wanted:
        if name not in makers:
            raise ConfigError(
                f"unknown class of mutants {name!r}", hint=f"classes: {', '.join(CLASSES)}"
            )
    return [mutant for name in CLASSES if name in wanted for mutant in makers[name]()]


class Gfx950Subject(Subject):
    """An artifact. Each class's judge is made when it is first needed."""

    suffix = ".s"

    def __init__(self, artifact: Artifact) -> None:
        kind_of(artifact)  # refuses what nothing here executes
        manifest = artifact.manifest
        self.artifact, self.text, self.kernel = artifact, artifact.text, manifest.kernel
        self.problem = ", ".join(f"{name}={value}" for name, value in manifest.problem.items())

    @cached_property
    def _order(self) -> Judge:
        return Judge(self.artifact)

    @cached_property
    def _values(self) -> ValueJudge:
        return ValueJudge(self.artifact)

    def mutants(self, classes: Sequence[str]) -> list[Mutant]:
        """Those that can be judged: of values, the ones that some call of verify executes."""
        x, y, z = self.artifact.manifest.block
        listing = read_listing(self.text, self.artifact.manifest.symbol)
        mutants = make_mutants(listing, x * y * z, classes)
        own = [m for m in mutants if m.kind == "values"]
        reached = self._values.reached if own else frozenset()
        if len(own) < len(mutants):
            _ = self._order  # what it refuses is refused before anything is run
        return [m for m in mutants if m.kind != "values" or not reached.isdisjoint(m.edits)]

    def judge(self, mutant: Mutant) -> Verdict:
        judge: Judge | ValueJudge = self._values if mutant.kind == "values" else self._order
        return judge.judge(mutant)
