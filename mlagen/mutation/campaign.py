"""Many mutants: made, sampled, judged on several processes, and counted."""

from __future__ import annotations

import gc
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlagen.artifact import Artifact
from mlagen.codegen.schedules import load
from mlagen.errors import ConfigError, FindingsError
from mlagen.mutation.barriers import barrier_mutants
from mlagen.mutation.judge import Judge, Verdict, verdict_fields
from mlagen.mutation.listing import Listing, read_listing
from mlagen.mutation.mutant import Mutant, apply
from mlagen.mutation.swizzle import swizzle_mutants
from mlagen.mutation.value_judge import ValueJudge
from mlagen.mutation.values import value_mutants
from mlagen.mutation.waits import nop_mutants, wait_mutants
from mlagen.processes import working
from mlagen.verify import kind_of

SCHEMA = "mlagen.mutate/1"
ORDER = ("waits", "barriers", "nops", "swizzle")  # what the emulator and its sanitizer must see
CLASSES = (*ORDER, "values")
# Classes whose defects may leave values right: only findings count as noticed there.
SYNCHRONISATION = ("waits", "barriers", "nops")


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


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of the mutants, drawn evenly from the operators, in their own order."""
    if count < 1:
        raise ConfigError(f"a sample of {count} mutants; at least 1")
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[int]] = {}
    for number, mutant in enumerate(mutants):
        groups.setdefault((mutant.kind, mutant.operator), []).append(number)
    for group in groups.values():
        rng.shuffle(group)
    order = list(groups.values())
    rng.shuffle(order)
    chosen: list[int] = []
    while len(chosen) < count and any(order):
        for group in order:
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return [mutants[number] for number in sorted(chosen)]


@dataclass(frozen=True)
class Report:
    """The verdicts on one kernel's mutants."""

    kernel: str
    problem: str
    made: int  # mutants there are; the verdicts may be those of a sample
    verdicts: tuple[Verdict, ...]
    seconds: float
    processes: int

    COLUMNS = (
        "class", "mutation", "mutants", "killed", "by a finding", "at the place", "equivalent",
        "missed",
    )  # fmt: skip

    @property
    def missed(self) -> tuple[Verdict, ...]:
        return self._with("missed")

    @property
    def equivalent(self) -> tuple[Verdict, ...]:
        return self._with("equivalent")

    @property
    def killed(self) -> tuple[Verdict, ...]:
        return self._with("killed")

    def rows(self) -> list[tuple[str, ...]]:
        """One row an operator and a total for each class, under COLUMNS."""
        rows = []
        for kind in dict.fromkeys(v.mutant.kind for v in self.verdicts):
            own = [v for v in self.verdicts if v.mutant.kind == kind]
            operators = list(dict.fromkeys(v.mutant.operator for v in own))
            for operator in operators:
                rows.append(_row(kind, operator, [v for v in own if v.mutant.operator == operator]))
            if len(operators) > 1:
                rows.append(_row(kind, "all", own))
        rows.append(_row("all", "", list(self.verdicts)))
        return rows

    def kinds(self) -> list[tuple[str, int]]:
        """What killed, and how many; the most frequent first."""
        return Counter(v.by for v in self.killed).most_common()

    def equivalents(self) -> list[tuple[str, str]]:
        """One line an equivalent mutant: (what and where, why)."""
        return [(_described(v.mutant), v.why) for v in self.equivalent]

    def misses(self) -> list[tuple[str, str]]:
        """One line a missed mutant: (what and where, why it counts as missed)."""
        return [(_described(v.mutant), v.why) for v in self.missed]

    def recall(self) -> str:
        """Of the mutants of waits, barriers and nops that change anything, those with findings."""
        own = [v for v in self.verdicts if v.mutant.kind in SYNCHRONISATION]
        changing = [v for v in own if v.outcome != "equivalent"]
        found = sum(v.by_finding for v in changing)
        return f"{found} of {len(changing)} by a finding" if changing else "none judged"

    def facts(self) -> list[tuple[str, str]]:
        """Name and value, one a line."""
        killed_by = ", ".join(f"{kind} {count}" for kind, count in self.kinds())
        sampled = f" of {self.made}" if self.made != len(self.verdicts) else ""
        return [
            ("kernel", self.kernel),
            ("problem", self.problem),
            ("mutants", f"{len(self.verdicts)}{sampled}"),
            ("killed", f"{len(self.killed)} ({killed_by})" if self.killed else "0"),
            ("waits, barriers, nops", self.recall()),
            ("equivalent", str(len(self.equivalent))),
            ("missed", str(len(self.missed))),
            ("time", f"{self.seconds:.0f} s on {self.processes} process(es)"),
        ]

    def error(self) -> FindingsError | None:
        """Why the checker did not pass; None when no mutant was missed."""
        if not self.missed:
            return None
        first = self.missed[0]
        return FindingsError(
            f"{len(self.missed)} of {len(self.verdicts)} mutants of {self.kernel} were missed; "
            f"the first: {_described(first.mutant)}: {first.why}"
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, `schema` first."""
        return {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "problem": self.problem,
            "made": self.made,
            "judged": len(self.verdicts),
            "killed": len(self.killed),
            "killed_by": dict(self.kinds()),
            "equivalent": len(self.equivalent),
            "missed": len(self.missed),
            "seconds": round(self.seconds, 1),
            "processes": self.processes,
            "verdicts": [verdict_fields(v) for v in self.verdicts],
        }

    def _with(self, outcome: str) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.outcome == outcome)


def mutate(
    artifact: Artifact,
    *,
    classes: Iterable[str] = ORDER,
    count: int | None = None,
    seed: int = 0,
    processes: int = 1,
    problem_file: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Judges the mutants of an artifact: all of some classes, or a sample of `count` of them.

    `processes` of more than 1 judge in as many processes. `problem_file`: the schedule file that
    brings the artifact's kind of problem, where it is none of the shipped ones. Raises ConfigError
    for an artifact of another kind of problem, FindingsError when the kernel itself is not clean.
    """
    if processes < 1:
        raise ConfigError(f"{processes} processes; at least 1")
    started = time.perf_counter()
    if problem_file is not None:
        load(problem_file, artifact.manifest.target)
    judges = Judges(artifact)
    x, y, z = artifact.manifest.block
    listing = read_listing(artifact.text, artifact.manifest.symbol)
    mutants = judges.fit(make_mutants(listing, x * y * z, classes))
    chosen = mutants if count is None else sample(mutants, count, seed)
    verdicts: dict[int, Verdict] = {}
    if processes == 1:
        for number, mutant in enumerate(chosen):
            verdicts[number] = judges.judge(mutant)
            if progress:
                progress(len(verdicts), len(chosen))
    else:
        # Not forked: the parent may hold threads, and numba's locks with them.
        context = multiprocessing.get_context("spawn")
        with (
            ProcessPoolExecutor(processes, context, _start, (artifact, problem_file)) as pool,
            working(pool, _judged, chosen) as futures,
        ):
            numbers = {future: number for number, future in enumerate(futures)}
            for future in as_completed(futures):
                verdicts[numbers[future]] = future.result()
                if progress:
                    progress(len(verdicts), len(chosen))
    return Report(
        kernel=artifact.manifest.kernel,
        problem=", ".join(f"{name}={value}" for name, value in artifact.manifest.problem.items()),
        made=len(mutants),
        verdicts=tuple(verdicts[number] for number in range(len(chosen))),
        seconds=time.perf_counter() - started,
        processes=processes,
    )


def missed_files(artifact: Artifact, report: Report) -> dict[str, bytes]:
    """The text of each missed mutant under a file name, for whoever looks into it."""
    return {
        f"{verdict.mutant.name}.s": apply(artifact.text, verdict.mutant.edits).encode()
        for verdict in report.missed
    }


class Judges:
    """The judge of each class of mutants, made when it is first needed."""

    def __init__(self, artifact: Artifact) -> None:
        kind_of(artifact)  # refuses what nothing here executes
        self.artifact = artifact

    @cached_property
    def _order(self) -> Judge:
        return Judge(self.artifact)

    @cached_property
    def _values(self) -> ValueJudge:
        return ValueJudge(self.artifact)

    def fit(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that can be judged: of values, the ones that some call of verify executes."""
        own = [m for m in mutants if m.kind == "values"]
        reached = self._values.reached if own else frozenset()
        if len(own) < len(mutants):
            _ = self._order  # what it refuses is refused before anything is run
        return [m for m in mutants if m.kind != "values" or not reached.isdisjoint(m.edits)]

    def judge(self, mutant: Mutant) -> Verdict:
        """Runs a mutant until it is decided."""
        judge: Judge | ValueJudge = self._values if mutant.kind == "values" else self._order
        return judge.judge(mutant)


_worker: Judges | None = None


def _start(artifact: Artifact, problem_file: str | None) -> None:
    """Prepares a judging process."""
    global _worker
    if problem_file is not None:
        load(problem_file, artifact.manifest.target)  # registers its kind of problem
    _worker = Judges(artifact)
    gc.collect()
    gc.freeze()  # what stays for good is not looked through again and again


def _judged(mutant: Mutant) -> Verdict:
    assert _worker is not None
    return _worker.judge(mutant)


def _row(kind: str, operator: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    killed = [v for v in verdicts if v.outcome == "killed"]
    numbers = (
        len(verdicts),
        len(killed),
        sum(v.by_finding for v in killed),
        sum(v.located for v in killed),
        sum(v.outcome == "equivalent" for v in verdicts),
        sum(v.outcome == "missed" for v in verdicts),
    )
    return (kind, operator, *(str(number) for number in numbers))


def _described(mutant: Mutant) -> str:
    role = f", {mutant.role} waves" if mutant.role not in ("", "all") else ""
    both = ", all waves" if mutant.role == "all" else ""
    return f"line {mutant.line} ({mutant.place}): {mutant.what}, {mutant.operator}{role}{both}"
