"""Which variant is next: all of a small space, or what a sampler of Optuna's expects the most of.

The store is the memory: a search is told what it holds, and forgets everything when it ends.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol

from mlagen.errors import ConfigError, required
from mlagen.extras import install
from mlagen.legal_names import require_name
from mlagen.tune.space import Knobs, SearchSpace, Value, knobs_key

EXHAUSTIVE = 500  # variants, of a space that is tried out
SAMPLERS = ("auto", "exhaustive", "descent", "tpe", "random", "genetic")
_REPEATS = 64  # suggestions in a row that are known already


class VariantSearch(Protocol):
    """Suggests variants. It is told of every one, whoever judged it."""

    name: str

    def ask(self) -> dict[str, Value] | None:
        """A variant nobody was told of; None: there is no more."""
        ...

    def tell(self, knobs: Knobs, cost: float | None) -> None:
        """A variant has this cost; None: it does not count."""
        ...


def check_sampler(name: str) -> None:
    """ConfigError for an unknown name, MissingError for one that needs Optuna where it is not."""
    require_name("sampler", name, SAMPLERS)
    if name not in ("auto", "exhaustive", "descent"):
        _optuna()


def make_search(
    space: SearchSpace, sampler: str, *, seed: int, first: Iterable[Knobs], budget: int | None
) -> VariantSearch:
    """The search of a name among SAMPLERS. `first`: variants to begin with, those of the space."""
    check_sampler(sampler)
    if sampler == "auto":
        few = space.size <= EXHAUSTIVE and (budget is None or budget >= space.size)
        sampler = "exhaustive" if few else "tpe"
    beginning = [dict(knobs) for knobs in first if space.holds(knobs)]
    if sampler == "exhaustive":
        return _Exhaustive(space, seed, beginning)
    if sampler == "descent":
        return _Descent(space, seed, beginning)
    return _Sampled(space, sampler, seed, beginning)


class _Exhaustive:
    name = "exhaustive"

    def __init__(self, space: SearchSpace, seed: int, first: list[dict[str, Value]]) -> None:
        if space.size > 10**6:
            raise ConfigError(f"{space.size} variants cannot all be tried", hint="--sampler tpe")
        # In a drawn order: what a budget cuts off is then no corner of the space.
        rest = list(range(space.size))
        random.Random(seed).shuffle(rest)
        self._left = chain(first, map(space.variant, rest))
        self._seen: set[str] = set()

    def ask(self) -> dict[str, Value] | None:
        for knobs in self._left:
            if knobs_key(knobs) not in self._seen:
                self._seen.add(knobs_key(knobs))
                return knobs
        return None

    def tell(self, knobs: Knobs, cost: float | None) -> None:
        self._seen.add(knobs_key(knobs))


class _Descent:
    """What differs from the best so far in one knob; where all of that is known, anything else.
    For few trials: it needs no model, and each of them tells what one knob does."""

    name = "descent"

    def __init__(self, space: SearchSpace, seed: int, first: list[dict[str, Value]]) -> None:
        self._space, self._first, self._draw = space, deque(first), random.Random(seed)
        self._best: tuple[float, dict[str, Value]] | None = None
        self._start = first[0] if first else space.default
        self._turn = 0
        self._seen: set[str] = set()

    def ask(self) -> dict[str, Value] | None:
        if len(self._seen) >= self._space.size:
            return None
        around = self._near(self._best[1] if self._best else self._start)
        anywhere = self._space.variants(self._draw.randrange(self._space.size))
        for knobs in chain(self._first, around, anywhere):
            if knobs_key(knobs) not in self._seen:
                self._seen.add(knobs_key(knobs))
                return knobs
        return None

    def _near(self, knobs: dict[str, Value]) -> list[dict[str, Value]]:
        """From the knob on that the best differs from its forerunner in: those before had their
        turn."""
        dimensions = self._space.dimensions[self._turn :] + self._space.dimensions[: self._turn]
        return [
            {**knobs, dimension.name: choice}
            for dimension in dimensions
            for choice in dimension.choices
            if choice != knobs[dimension.name]
        ]

    def tell(self, knobs: Knobs, cost: float | None) -> None:
        if not self._space.holds(knobs):
            return
        self._seen.add(knobs_key(knobs))
        if cost is None or (self._best is not None and cost >= self._best[0]):
            return
        before = self._best[1] if self._best else self._start
        names = [dimension.name for dimension in self._space.dimensions]
        self._turn = next((i for i, n in enumerate(names) if before[n] != knobs[n]), self._turn)
        self._best = (cost, dict(knobs))


class _Sampled:
    """Optuna's samplers over an in-memory study."""

    def __init__(
        self, space: SearchSpace, sampler: str, seed: int, first: list[dict[str, Value]]
    ) -> None:
        optuna = _optuna()
        samplers = {
            "tpe": lambda: optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=False, constant_liar=True, n_startup_trials=20
            ),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "genetic": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
        }
        self.name = sampler
        self._optuna, self._space, self._first = optuna, space, deque(first)
        self._study = optuna.create_study(sampler=samplers[sampler]())
        self._draw = random.Random(seed)
        self._by_text = {
            d.name: {str(choice): choice for choice in d.choices} for d in space.dimensions
        }
        self._distributions = {
            name: optuna.distributions.CategoricalDistribution(list(texts))
            for name, texts in self._by_text.items()
        }
        self._seen: dict[str, float | None] = {}
        self._asked: dict[str, Any] = {}  # Optuna's trials that nobody has judged yet

    def ask(self) -> dict[str, Value] | None:
        while self._first:
            knobs = self._first.popleft()
            if self._new(knobs):
                return self._asking(knobs, None)
        if len(self._seen) + len(self._asked) >= self._space.size:
            return None
        for _ in range(_REPEATS):
            trial = self._study.ask(self._distributions)
            knobs = {name: self._by_text[name][text] for name, text in trial.params.items()}
            if self._new(knobs):
                return self._asking(knobs, trial)
            self._finish(trial, self._seen.get(knobs_key(knobs)))
        anywhere = self._space.variants(self._draw.randrange(self._space.size))
        return self._asking(next(filter(self._new, anywhere)), None)

    def _new(self, knobs: Knobs) -> bool:
        return knobs_key(knobs) not in self._seen and knobs_key(knobs) not in self._asked

    def _asking(self, knobs: dict[str, Value], trial: Any) -> dict[str, Value]:
        self._asked[knobs_key(knobs)] = trial
        return knobs

    def tell(self, knobs: Knobs, cost: float | None) -> None:
        key = knobs_key(knobs)
        if key in self._seen or not self._space.holds(knobs):
            return
        self._seen[key] = cost
        trial = self._asked.pop(key, None)
        if trial is not None:
            self._finish(trial, cost)
            return
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params={name: str(value) for name, value in knobs.items()},
                distributions=self._distributions,
                value=cost,
                state=states.PRUNED if cost is None else states.COMPLETE,
            )
        )

    def _finish(self, trial: Any, cost: float | None) -> None:
        """What has no cost is "pruned": the sampler takes it for worse than all others."""
        if cost is None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(trial, cost)


def _optuna() -> Any:
    optuna = required("optuna", "the samplers are Optuna's, which is not installed",
                      f"{install('tune')}; --sampler exhaustive needs nothing")  # fmt: skip
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
