"""One command's worth of tuning: describe, search, confirm."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen.tune.judge import Described, describe, judge, warm_up
from mlagen.tune.sandbox import Sandbox
from mlagen.tune.search import check_sampler, make_search
from mlagen.tune.space import Knobs, Value
from mlagen.tune.store import Store, Study, Trial, best_of
from mlagen.tune.tuner import Budget, Progress, Tuner, Watch
from mlagen.tune.values import Cost, Question
from mlagen.tune.workers import LocalWorkers, Workers

_DESCRIBE = 300.0  # seconds: the first run on a machine compiles the emulator
MakeWorkers = Callable[[Question, float], Workers]


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for. `limits`: choices by knob. `limit`: seconds a trial may take."""

    kernel: str
    fields: Mapping[str, str]
    shapes: Sequence[str] = ()
    limits: Mapping[str, str] | None = None
    target: str | None = None
    cost: Cost | None = None
    sampler: str = "auto"
    trials: int | None = None
    seconds: float | None = None
    limit: float = 120.0
    jobs: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a run ends with. `winner`: confirmed; None where nothing passed."""

    described: Described
    study: Study
    progress: Progress
    winner: Trial | None
    trials: tuple[Trial, ...]
    search: str


def tune(
    request: Request,
    store: Store,
    *,
    watch: Watch = lambda progress: None,
    make_workers: MakeWorkers | None = None,
    first: Sequence[Knobs] = (),
) -> Result:
    """Search the best variant of a kernel and keep everything in the store.

    `first`: variants to begin with, behind the reference. Raises what the kernel, its problem or
    the shape refuses, before the store is touched; StoreError where that cannot be written.
    """
    check_sampler(request.sampler)
    sandbox = Sandbox()
    try:
        described: Described = sandbox.call(
            describe, request.kernel, request.target, dict(request.fields), list(request.shapes),
            dict(request.limits or {}), request.cost, limit=_DESCRIBE,
        )  # fmt: skip
    finally:
        sandbox.close()
    make = make_workers or _local(request.jobs)
    workers = make(described.question, request.limit)
    return search_described(described, request, store, workers, watch=watch, first=first)


def search_described(
    described: Described,
    request: Request,
    store: Store,
    workers: Workers,
    *,
    watch: Watch = lambda progress: None,
    first: Sequence[Knobs] = (),
) -> Result:
    """`tune` without asking the schedule. The workers are closed when it ends."""
    question, space = described.question, described.space
    reference = described.default if space.holds(described.default) else space.default
    study = store.study(question, reference)
    code = described.versions["code"]
    beginning = [study.reference, *store.abandoned(study, code), *first, *_former(store, study)]
    search = make_search(
        space, request.sampler, seed=request.seed, first=beginning, budget=request.trials
    )
    tuner = Tuner(
        described, store, search, workers,
        reference=study.reference, budget=Budget(request.trials, request.seconds), watch=watch,
        seed=request.seed,
    )  # fmt: skip
    progress = tuner.run()
    trials = tuple(store.trials(study, code=code))
    best = best_of(list(trials))
    winner = best if best is not None and best.confirmed == "yes" else None
    return Result(described, study, progress, winner, trials, search.name)


def _local(jobs: int | None) -> MakeWorkers:
    def make(question: Question, limit: float) -> Workers:
        count = jobs or (len(os.sched_getaffinity(0)) if question.cost == "predicted" else 1)
        return LocalWorkers(count, judge, limit, warm_for(question))

    return make


def warm_for(question: Question) -> Callable[[], None] | None:
    """What a process for trials loads before it is forked."""
    return warm_up if question.cost == "predicted" else None


def _former(store: Store, study: Study, count: int = 3) -> list[dict[str, Value]]:
    """The best of other states of the code: what was good is likely to be good again."""
    costed = [trial for trial in store.trials(study) if trial.cost is not None]
    costed.sort(key=lambda trial: (trial.confirmed != "yes", trial.cost or 0.0))
    return [trial.knobs for trial in costed[:count]]


def open_store(path: Path | str | None) -> Store:
    """The store at `path`, or this user's."""
    from mlagen import env

    return Store(Path(path) if path is not None else env.tuning_store())
