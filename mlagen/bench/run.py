"""A run: who can do a workload, who is right, and how fast those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mlagen.bench.report import OURS, BenchReport, BenchResult, BenchRow, Ceiling
from mlagen.bench.timing import interleaved
from mlagen.family.benchmark import Benchmark, CaseJudge, Judgement, Lab, Work
from mlagen.family.peers import Adapted, Peer, PeerAbsent, PeerUnfit

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


def _row(work: Work, peers: Sequence[Peer], lab: Lab, repeats: int) -> BenchRow:
    case = lab.case(work)
    judge = lab.judge(case)
    ours = lab.ours(case)
    output = ours()
    lab.wait()
    tried = [_judged(OURS, judge.ours(output), ours)]
    tried += [_try(one, case, lab, judge) for one in peers]
    calls = {result.name: call for result, call in tried if call is not None}
    times = interleaved(calls, lab.clock, repeats=repeats)
    return BenchRow(work, tuple(replace(one, times=times.get(one.name)) for one, _ in tried))


def _judged(name: str, verdict: Judgement, call: Call) -> tuple[BenchResult, Call | None]:
    """A contender and its call; without one where it computed something else."""
    wrong = bool(verdict.wrong)
    result = BenchResult(name, error=verdict.error, reason=verdict.wrong, wrong=wrong)
    return result, None if wrong else call


def _try(one: Peer, case: Any, lab: Lab, judge: CaseJudge) -> tuple[BenchResult, Call | None]:
    try:
        call = one.prepare(case)
        name = f"{one.name} ({call.how})" if isinstance(call, Adapted) else one.name
        out: Any = call()
        lab.wait()
    except PeerUnfit as error:
        return BenchResult(one.name, reason=error.message), None
    except Exception as error:  # whatever a library does with a workload that it does not know
        first = str(error).strip().partition("\n")[0]
        return BenchResult(one.name, reason=f"{type(error).__name__}: {first[:200]}"), None
    return _judged(name, judge.peer(out), call)
