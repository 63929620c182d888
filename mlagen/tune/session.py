"""One command's worth of tuning: describe, search, confirm."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mlagen.errors import ConfigError
from mlagen.targets.registry import vendor_of
from mlagen.tune.judge import Described, describe, finish, judge, prepare, warm_up
from mlagen.tune.sandbox import Sandbox
from mlagen.tune.search import check_sampler, make_search
from mlagen.tune.space import Knobs, SearchSpace, Value
from mlagen.tune.store import KeptTrial, Store, Study, best_of
from mlagen.tune.tuner import Progress, TuneBudget, Tuner, Watch
from mlagen.tune.values import Cost, Question
from mlagen.tune.workers import LocalWorkers, Workers

_DESCRIBE = 300.0  # seconds: the first run on a machine compiles the emulator
MakeWorkers = Callable[["TuneRequest", Described], Workers]


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What a user asks for. `limits`: choices by knob. `limit`: seconds that a trial may take.
    Trials run `jobs` at a time here, or on the workers of a Dask `scheduler`, or on `local_workers`
    of one that is started."""

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
    scheduler: str | None = None
    local_workers: int | None = None


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a run ends with. `winner`: confirmed; None where nothing passed."""

    described: Described
    study: Study
    progress: Progress
    winner: KeptTrial | None
    trials: tuple[KeptTrial, ...]
    search: str


def tune(
    request: TuneRequest,
    store: Store,
    *,
    watch: Watch = lambda progress: None,
    make_workers: MakeWorkers | None = None,
    first: Sequence[Knobs] = (),
) -> TuneResult:
    """Search the best variant of a kernel and keep everything in the store.

    `first`: variants to begin with, after the reference. Raises what the kernel, its problem or
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
    workers = (make_workers or usual_workers)(request, described)
    try:
        described = _on_its_device(described, workers)
    except BaseException:
        workers.close()
        raise
    return search_described(described, request, store, workers, watch=watch, first=first)


def _on_its_device(described: Described, workers: Workers) -> Described:
    """With the GPU that measures, which only where trials run can be asked."""
    question = described.question
    if question.cost == "predicted":
        return described
    from mlagen.tune import measured

    device = workers.ask(measured.device, question.target, limit=_DESCRIBE)
    question = msgspec.structs.replace(question, device=device)
    return msgspec.structs.replace(described, question=question)


def search_described(
    described: Described,
    request: TuneRequest,
    store: Store,
    workers: Workers,
    *,
    watch: Watch = lambda progress: None,
    first: Sequence[Knobs] = (),
) -> TuneResult:
    """`tune` without asking the schedule. The workers are closed when it ends."""
    space = described.space
    reference = described.default if space.holds(described.default) else space.default
    study = _study(store, described, reference)
    code = described.versions["code"]
    beginning = [
        study.reference,
        *store.abandoned(study, code),
        *first,
        *_former(store, study, space),
    ]
    search = make_search(
        space, request.sampler, seed=request.seed, first=beginning, budget=request.trials
    )
    tuner = Tuner(
        described, store, search, workers,
        reference=study.reference, budget=TuneBudget(request.trials, request.seconds), watch=watch,
        seed=request.seed,
    )  # fmt: skip
    progress = tuner.run()
    trials = tuple(store.trials(study, code=code))
    best = best_of(list(trials))
    winner = best if best is not None and best.confirmed == "yes" else None
    return TuneResult(described, study, progress, winner, trials, search.name)


def _study(store: Store, described: Described, reference: Knobs) -> Study:
    """The question's study. Its reference is the default of today, where the space has it: the
    schedule may have other knobs than when the study began."""
    study = store.study(described.question, reference)
    held = described.space.holds(study.reference)
    if study.reference != dict(reference) and (reference == described.default or not held):
        store.refer(study, reference)
    return store.study(described.question, reference)


def usual_workers(request: TuneRequest, described: Described) -> Workers:
    """Where a request wants its trials to run. ConfigError: in two places."""
    question, limit = described.question, request.limit
    places = [request.jobs, request.scheduler, request.local_workers]
    if sum(place is not None for place in places) > 1:
        raise ConfigError("--jobs, --scheduler and --local-workers: trials run in one place")
    if request.scheduler is None and request.local_workers is None:
        count = request.jobs or (len(os.sched_getaffinity(0)) if _predicts(question) else 1)
        return LocalWorkers(count, judge, limit, warm_for(question))
    from mlagen.tune.cluster import connect, local_cluster

    stages = (judge,) if _predicts(question) else (prepare, finish)
    options: dict[str, Any] = {
        "tag": "" if _predicts(question) else question.target,
        "warm": warm_for(question),
        "code": described.versions["code"],
    }
    if request.scheduler is not None:
        return connect(request.scheduler, stages, limit, **options)
    assert request.local_workers is not None
    gpus = "" if _predicts(question) else vendor_of(question.target).devices
    return local_cluster(request.local_workers, stages, limit, gpus=gpus, **options)


def _predicts(question: Question) -> bool:
    return question.cost == "predicted"


def warm_for(question: Question) -> Callable[[], None]:
    """What a process for trials loads before it is forked."""
    if _predicts(question):
        return warm_up
    from mlagen.tune import measured

    return partial(measured.warm_up, question.kernel)


def _former(
    store: Store, study: Study, space: SearchSpace, count: int = 3
) -> list[dict[str, Value]]:
    """The best of other states of the code: what was good is likely to be good again. Knobs that
    have come since are at their default."""
    costed = [trial for trial in store.trials(study) if trial.cost is not None]
    costed.sort(key=lambda trial: (trial.confirmed != "yes", trial.cost or 0.0))
    choices = {dimension.name: dimension.choices for dimension in space.dimensions}
    return [
        space.default
        | {name: value for name, value in trial.knobs.items() if value in choices.get(name, ())}
        for trial in costed[:count]
    ]


def open_store(path: Path | str | None) -> Store:
    """The store at `path`, or this user's."""
    from mlagen import env

    return Store(Path(path) if path is not None else env.tuning_store())
