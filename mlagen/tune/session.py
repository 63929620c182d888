"""One command's worth of tuning: describe, search, confirm."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen.tune.judge import Described, describe, judge, warm_up
from mlagen.tune.sandbox import Sandbox
from mlagen.tune.search import make_search
from mlagen.tune.space import Knobs, Value
from mlagen.tune.store import Store, Study, Trial, best_of
from mlagen.tune.tuner import Budget, Progress, Tuner, Watch
from mlagen.tune.values import Cost, Job, Question
from mlagen.tune.workers import LocalWorkers, Workers, judged

_DESCRIBE = 300.0  # seconds: the first run on a machine compiles the emulator
_SECOND_LOOK = ("latest", "earliest", "random")
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
    sandbox = Sandbox()
    try:
        described: Described = sandbox.call(
            describe, request.kernel, request.target, dict(request.fields), list(request.shapes),
            dict(request.limits or {}), request.cost, limit=_DESCRIBE,
        )  # fmt: skip
    finally:
        sandbox.close()
    question, space = described.question, described.space
    reference = described.default if space.holds(described.default) else space.default
    study = store.study(question, reference)
    code = described.versions["code"]
    beginning = [study.reference, *store.abandoned(study, code), *first, *_former(store, study)]
    search = make_search(
        space, request.sampler, seed=request.seed, first=beginning, budget=request.trials
    )
    workers = (make_workers or _local(request.jobs))(question, request.limit)
    tuner = Tuner(
        described, store, search, workers,
        reference=study.reference, budget=Budget(request.trials, request.seconds), watch=watch,
        seed=request.seed,
    )  # fmt: skip
    progress = tuner.run()
    winner = _confirmed(described, store, study, request.limit)
    trials = tuple(store.trials(study, code=code))
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


def _confirmed(described: Described, store: Store, study: Study, limit: float) -> Trial | None:
    """The best variant that passes a second look: other numbers, random completion times. One that
    does not is no winner, and its record says why."""
    code = described.versions["code"]
    sandbox = Sandbox(warm_for(described.question))
    try:
        while (best := best_of(store.trials(study, code=code))) is not None:
            if best.confirmed == "yes":
                return best
            job = Job(described.question, best.knobs, study.reference, described.interface,
                      seed=1000 + best.id, modes=_SECOND_LOOK)  # fmt: skip
            outcome = judged(sandbox, judge, job, 4 * limit)
            if outcome.verdict == "passed":
                store.confirm(best.id, "yes")
            else:
                store.confirm(best.id, outcome.message, outcome)
        return None
    finally:
        sandbox.close()


def open_store(path: Path | str | None) -> Store:
    """The store at `path`, or this user's."""
    from mlagen import env

    return Store(Path(path) if path is not None else env.tuning_store())
