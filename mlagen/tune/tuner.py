"""The loop: ask the search, claim in the store, hand to the workers, keep what they say.

Nothing is in this process alone for longer than a trial takes: whoever starts it again after a
kill goes on with what the store holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mlagen.tune.judge import Described
from mlagen.tune.search import VariantSearch
from mlagen.tune.space import Knobs, Value, differing, knobs_key
from mlagen.tune.store import KeptTrial, Store, Study, best_of
from mlagen.tune.values import TrialJob, TrialOutcome
from mlagen.tune.workers import Workers
from mlagen.untrusted import printable

_LOG = logging.getLogger("mlagen.tune")
HOPELESS = 1.3  # times the best estimate, beyond which a variant is not verified
SECOND_SEED = 1000  # of inputs, plus the trial's number
_SECOND_LOOK = ("latest", "earliest", "random")
_POLL, _BEAT = 0.5, 10.0  # seconds
_WAIT = 2.0  # seconds between looks at what other tuners are at


@dataclass(frozen=True, slots=True)
class TuneBudget:
    """When to stop: after so many trials, or so many seconds. None: never for that reason."""

    trials: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Progress:
    """What a run has done so far. `judged`: by this run; `total`: in the store, for this code."""

    judged: int = 0
    total: int = 0
    running: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    best: KeptTrial | None = None
    reference: KeptTrial | None = None
    seconds: float = 0.0

    @property
    def gain(self) -> float | None:
        """How many times less the best costs than the reference."""
        if self.best is None or self.reference is None:
            return None
        if self.best.cost is None or self.reference.cost is None:
            return None
        return self.reference.cost / self.best.cost


Watch = Callable[[Progress], None]


class Tuner:
    """One run over one question. `limit`s of time belong to the workers."""

    def __init__(
        self,
        described: Described,
        store: Store,
        search: VariantSearch,
        workers: Workers,
        *,
        reference: Knobs,
        budget: TuneBudget,
        watch: Watch = lambda progress: None,
        seed: int = 0,
    ) -> None:
        self.described, self.store, self.search = described, store, search
        self.workers, self.budget, self.watch, self.seed = workers, budget, watch, seed
        self.code = described.versions["code"]
        self.study: Study = store.study(described.question, reference)
        self.progress = Progress()
        self._texts: dict[str, int] = {}
        self._trials: dict[int, KeptTrial] = {}
        self._running: dict[int, dict[str, Value]] = {}
        self._hurdle: float | None = None

    def run(self) -> Progress:
        """Judge until the budget or the space is used up, and look twice at the best."""
        try:
            self._judge()
            self._confirm()
            return self.progress
        finally:
            self.workers.close()
            self.store.release()

    def _judge(self) -> None:
        """Until nothing may be begun any more; what runs then is waited for."""
        started = last_beat = time.monotonic()
        self._learn()
        asked_all = False
        while True:
            now = time.monotonic()
            self.progress.seconds = now - started
            spent = self._spent()
            while not spent and not asked_all and len(self._running) < self.workers.slots:
                asked_all = not self._begin(iter(self.search.ask, None))
                spent = self._spent()
            self.progress.running = len(self._running)
            self.watch(self.progress)
            if not self._running and (spent or asked_all):
                # A variant that another tuner holds may come back, should that one die.
                if spent or not self.store.pending(self.study, self.code):
                    return
                time.sleep(_WAIT)
                asked_all = not self._begin(self.store.abandoned(self.study, self.code))
            for number, outcome in self.workers.finished(_POLL):
                self._end(number, outcome)
            if now - last_beat > _BEAT:
                self.store.beat()
                last_beat = now
            self._learn()

    def _confirm(self) -> None:
        """A second look at the best: other numbers, random completion times. One that does not
        pass is no winner, its record says why, and the next best is looked at."""
        while True:
            best = best_of(self.store.trials(self.study, code=self.code))
            self.progress.best = best
            if best is None or best.confirmed == "yes":
                return
            job = self._job(best.knobs, seed=SECOND_SEED + best.id, modes=_SECOND_LOOK)
            self.workers.submit(best.id, job)
            ended: list[tuple[int, TrialOutcome]] = []
            while not ended:
                ended = list(self.workers.finished(_POLL))
            outcome = ended[0][1]
            if outcome.verdict == "lost":
                return  # the best stays unconfirmed: another run may look again
            if outcome.verdict == "passed":
                # Of two measurements the worse one counts: a lucky first one wins nothing.
                worse = max(best.cost or 0.0, outcome.cost or 0.0)
                kept = msgspec.structs.replace(best.outcome, cost=worse)
                self.store.confirm(best.id, "yes", kept)
            else:
                self.store.confirm(best.id, outcome.message or outcome.verdict, outcome)

    def _spent(self) -> bool:
        budget, begun = self.budget, self.progress.judged + len(self._running)
        if budget.seconds is not None and self.progress.seconds >= budget.seconds:
            return True
        return budget.trials is not None and begun >= budget.trials

    def _begin(self, variants: Iterable[dict[str, Value]]) -> bool:
        """Start the first that is to be had of some variants. False: there is none."""
        for knobs in variants:
            number = self.store.claim(self.study, knobs, self.code)
            if number is not None:
                self._running[number] = knobs
                job = self._job(knobs, known=dict(self._texts), hurdle=self._hurdle, seed=self.seed)
                self.workers.submit(number, job)
                return True
        return False

    def _job(self, knobs: Knobs, **more: Any) -> TrialJob:
        described = self.described
        return TrialJob(described.question, dict(knobs), dict(self.study.reference),
                        described.interface, reference_artifact=described.reference,
                        beside=described.beside, **more)  # fmt: skip

    def _end(self, number: int, outcome: TrialOutcome) -> None:
        knobs = self._running.pop(number)
        if outcome.same_as is not None:
            twin = self._trials[outcome.same_as].outcome
            outcome = msgspec.structs.replace(
                outcome, verdict=twin.verdict, cost=twin.cost, estimate=twin.estimate,
                message=f"the same kernel as trial {outcome.same_as}",
            )  # fmt: skip
        if not outcome.versions:  # its process died before it could say
            outcome = msgspec.structs.replace(
                outcome, versions=self.described.versions, device=self.described.question.device
            )
        self.progress.judged += 1
        if outcome.verdict == "lost":  # says nothing of the variant: another run may try it
            self.progress.verdicts["lost"] = self.progress.verdicts.get("lost", 0) + 1
            what = printable(f"{differing(knobs, self.study.reference)}: {outcome.message}")
            _LOG.warning("not judged, another run tries it again: %s", what)
            self.store.forget(number)
            return
        self.store.finish(number, outcome)

    def _learn(self) -> None:
        """What the store holds, whoever put it there."""
        trials = self.store.trials(self.study, code=self.code, known=self._trials.keys())
        progress = self.progress
        reference = knobs_key(self.study.reference)
        for trial in trials:
            self._trials[trial.id] = trial
            outcome = trial.outcome
            if outcome.text and outcome.same_as is None:
                self._texts.setdefault(outcome.text, trial.id)
            if trial.cost is not None and outcome.estimate is not None:
                hurdle = outcome.estimate * HOPELESS
                self._hurdle = min(self._hurdle or hurdle, hurdle)
            self.search.tell(trial.knobs, trial.cost)
            progress.total += 1
            progress.verdicts[outcome.verdict] = progress.verdicts.get(outcome.verdict, 0) + 1
            if knobs_key(trial.knobs) == reference:
                progress.reference = trial
        progress.best = best_of([t for t in (progress.best, *trials) if t is not None])
