"""A run: who can do a workload, who is right, and how fast those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlagen.bench.report import OURS, BenchReport, Ceiling, Result, Row
from mlagen.bench.timing import interleaved
from mlagen.family.benchmark import Benchmark, Judge, Lab, Work
from mlagen.family.peers import Peer, PeerAbsent, PeerUnfit

REPEATS = 30
Call = Callable[[], Any]
Progress = Callable[[int, int], None]


def bench(
    kernel: str,
    benchmark: Benchmark,
    works: Sequence[Work],
    peers: Sequence[Peer],
    lab: Lab,
    *,
    repeats: int = REPEATS,
    progress: Progress | None = None,
) -> BenchReport:
    """Times `kernel`, which `lab` runs, and the peers, by what its family's benchmark says of them.
    ConfigError: no repeats."""
    present, versions, absent = [], {}, {}
    for one in peers:
        try:
            versions[one.name] = one.load()
            present.append(one)
        except PeerAbsent as error:
            absent[one.name] = error.message
    tops = lab.ceilings()
    times = interleaved({name: call for name, (call, _, _) in tops.items()}, lab.clock,
                        repeats=repeats)  # fmt: skip
    ceilings = {
        name: Ceiling(amount / times[name].median, unit, times[name])
        for name, (_, amount, unit) in tops.items()
    }
    del tops
    rows = []
    for index, work in enumerate(works):
        rows.append(_row(work, present, lab, repeats))
        if progress is not None:
            progress(index + 1, len(works))
    return BenchReport(
        kernel, benchmark.formulas, lab.facts(), ceilings, versions, absent, repeats, tuple(rows)
    )


def _row(work: Work, peers: Sequence[Peer], lab: Lab, repeats: int) -> Row:
    case = lab.case(work)
    judge = lab.judge(case)
    calls: dict[str, Call] = {}
    ours = lab.ours(case)
    output = ours()
    lab.wait()
    verdict = judge.ours(output)
    errors: dict[str, float | None] = {OURS: verdict.error}
    reasons: dict[str, tuple[str, bool]] = {}
    if verdict.wrong:
        reasons[OURS] = (verdict.wrong, True)
    else:
        calls[OURS] = ours
    for one in peers:
        found = _try(one, case, lab, judge)
        errors[one.name] = found.error
        if isinstance(found.call, str):
            reasons[one.name] = (found.call, found.wrong)
        else:
            calls[one.name] = found.call
    times = interleaved(calls, lab.clock, repeats=repeats)
    return Row(
        work,
        tuple(
            Result(name, times.get(name), errors[name], *reasons.get(name, ("", False)))
            for name in (OURS, *(one.name for one in peers))
        ),
    )


class _Tried:
    """A peer's call, or why there is none."""

    def __init__(self, call: Call | str, error: float | None = None, wrong: bool = False) -> None:
        self.call, self.error, self.wrong = call, error, wrong


def _try(one: Peer, case: Any, lab: Lab, judge: Judge) -> _Tried:
    try:
        call = one.prepare(case)
        out: Any = call()
        lab.wait()
    except PeerUnfit as error:
        return _Tried(error.message)
    except Exception as error:  # whatever a library does with a workload that it does not know
        first = str(error).strip().partition("\n")[0]
        return _Tried(f"{type(error).__name__}: {first[:200]}")
    verdict = judge.peer(out)
    return _Tried(verdict.wrong or call, verdict.error, bool(verdict.wrong))
