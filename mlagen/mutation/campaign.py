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
from typing import Any

from mlagen.errors import ConfigError, FindingsError
from mlagen.mutation.subject import Subject, SubjectSource, described
from mlagen.mutation.verdict import Verdict
from mlagen.processes import safe_path, working

SCHEMA = "mlagen.mutate/1"
# Classes whose defects may leave values right: only findings count as noticed there.
SYNCHRONISATION = ("waits", "barriers", "nops", "arrivals", "fences", "phases")


def sample(mutants: Sequence[Any], count: int, seed: int) -> list[Any]:
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
class CampaignReport:
    """The verdicts on one kernel's mutants."""

    kernel: str
    problem: str
    made: int  # mutants there are; the verdicts may be those of a sample
    verdicts: tuple[Verdict, ...]
    seconds: float
    processes: int
    judges: tuple[str, ...] = ("emulator",)

    @property
    def columns(self) -> tuple[str, ...]:
        """Titles of `rows`."""
        told = ("by a finding", "at the place") if self._alone else ("by emulator", "by audit")
        return ("class", "mutation", "mutants", "killed", *told, "equivalent", "missed")

    @property
    def _alone(self) -> bool:
        """Whether the emulator alone judged, as it does of gfx950."""
        return self.judges == ("emulator",)

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
        """One row an operator and a total for each class, under `columns`."""
        rows = []
        for kind in dict.fromkeys(v.mutant.kind for v in self.verdicts):
            own = [v for v in self.verdicts if v.mutant.kind == kind]
            operators = list(dict.fromkeys(v.mutant.operator for v in own))
            for operator in operators:
                rows.append(
                    self._row(kind, operator, [v for v in own if v.mutant.operator == operator])
                )
            if len(operators) > 1:
                rows.append(self._row(kind, "all", own))
        rows.append(self._row("all", "", list(self.verdicts)))
        return rows

    def kinds(self) -> list[tuple[str, int]]:
        """What killed, and how many; the most frequent first."""
        return Counter(v.by for v in self.killed).most_common()

    def equivalents(self) -> list[tuple[str, str]]:
        """One line an equivalent mutant: (what and where, why)."""
        return [described(v) for v in self.equivalent]

    def misses(self) -> list[tuple[str, str]]:
        """One line a missed mutant: (what and where, why it counts as missed)."""
        return [described(v) for v in self.missed]

    def recall(self) -> str:
        """Of the mutants of what synchronises that change anything, those with findings."""
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
            (", ".join(self._synchronising), self.recall()),
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
            f"the first: {first.mutant.described}: {first.why}"
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
            "verdicts": [v.fields() for v in self.verdicts],
        }

    @property
    def _synchronising(self) -> tuple[str, ...]:
        """Names of the classes of `recall`; of gfx950 all of them."""
        if self._alone:
            return ("waits", "barriers", "nops")
        return tuple(kind for kind in SYNCHRONISATION if kind != "nops")

    def _row(self, kind: str, operator: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
        killed = [v for v in verdicts if v.outcome == "killed"]
        if self._alone:
            told = [sum(v.by_finding for v in killed), sum(v.located for v in killed)]
        else:
            told = [sum(bool(v.emulator) for v in killed), sum(bool(v.audit) for v in killed)]
        numbers = (
            len(verdicts),
            len(killed),
            *told,
            sum(v.outcome == "equivalent" for v in verdicts),
            sum(v.outcome == "missed" for v in verdicts),
        )
        return (kind, operator, *(str(number) for number in numbers))

    def _with(self, outcome: str) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.outcome == outcome)


def mutate(
    source: SubjectSource,
    *,
    classes: Iterable[str] = (),
    count: int | None = None,
    seed: int = 0,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> CampaignReport:
    """Judges the mutants of a kernel: all of some classes, or a sample of `count` of them.

    Without `classes`: those whose defects the checkers must see. `processes` of more than 1 judge
    in as many processes. Raises ConfigError for an artifact of another kind of problem, and
    FindingsError when the kernel itself is not clean.
    """
    if processes < 1:
        raise ConfigError(f"{processes} processes; at least 1")
    started = time.perf_counter()
    wanted = source.checked(classes)
    subject = source.subject()
    mutants = subject.mutants(wanted)
    chosen = mutants if count is None else sample(mutants, count, seed)
    verdicts: dict[int, Verdict] = {}
    if processes == 1:
        for number, mutant in enumerate(chosen):
            verdicts[number] = subject.judge(mutant)
            if progress:
                progress(len(verdicts), len(chosen))
    else:
        # Not forked: the parent may hold threads, and numba's locks with them.
        context = multiprocessing.get_context("spawn")
        with (
            safe_path(),
            ProcessPoolExecutor(processes, context, _start, (source,)) as pool,
            working(pool, _judged, chosen) as futures,
        ):
            numbers = {future: number for number, future in enumerate(futures)}
            for future in as_completed(futures):
                verdicts[numbers[future]] = future.result()
                if progress:
                    progress(len(verdicts), len(chosen))
    return CampaignReport(
        kernel=subject.kernel,
        problem=subject.problem,
        made=len(mutants),
        verdicts=tuple(verdicts[number] for number in range(len(chosen))),
        seconds=time.perf_counter() - started,
        processes=processes,
        judges=subject.judges,
    )


def missed_files(text: str, suffix: str, report: CampaignReport) -> dict[str, bytes]:
    """The text of each missed mutant under a file name, for whoever looks into it."""
    return {
        f"{verdict.mutant.name}{suffix}": verdict.mutant.apply(text).encode()
        for verdict in report.missed
    }


_worker: Subject | None = None


def _start(source: SubjectSource) -> None:
    """Prepares a judging process."""
    global _worker
    _worker = source.subject()
    gc.collect()
    gc.freeze()  # what stays for good is not looked through again and again


def _judged(mutant: Any) -> Verdict:
    assert _worker is not None
    return _worker.judge(mutant)
