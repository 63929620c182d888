"""Which knobs mattered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, median

from mlagen.tune.space import Value
from mlagen.tune.store import KeptTrial


def importance(trials: Sequence[KeptTrial]) -> list[tuple[str, float]]:
    """Knobs, and the part of the variance of the costs' ranks that a knob's value alone explains
    (eta squared), the largest first. Ranks: one variant ten times as slow as all others would
    otherwise be all there is to see. What was sampled more near the best counts more."""
    costed = sorted(
        (trial for trial in trials if trial.cost is not None), key=lambda t: t.cost or 0
    )
    ranks = {trial.id: float(rank) for rank, trial in enumerate(costed)}
    if len(costed) < 2:
        return []
    mean = fmean(ranks.values())
    whole = sum((rank - mean) ** 2 for rank in ranks.values())
    found = []
    for name in costed[0].knobs:
        groups = _by_value(costed, name, lambda trial: ranks[trial.id]).values()
        between = sum(len(group) * (fmean(group) - mean) ** 2 for group in groups)
        found.append((name, between / whole))
    return sorted(found, key=lambda one: -one[1])


def effects(trials: Sequence[KeptTrial]) -> dict[str, list[tuple[Value, float, int]]]:
    """By knob: each value, how its variants' median cost compares with the least such median, and
    how many there are."""
    found: dict[str, list[tuple[Value, float, int]]] = {}
    costed = [trial for trial in trials if trial.cost is not None]
    for name in costed[0].knobs if costed else ():
        groups = _by_value(costed, name, lambda trial: trial.cost or 0.0)
        medians = {value: median(group) for value, group in groups.items()}
        least = min(medians.values())
        found[name] = [(v, medians[v] / least, len(groups[v])) for v in groups]
        found[name].sort(key=lambda one: one[1])
    return found


def _by_value(
    trials: Sequence[KeptTrial], knob: str, number: Callable[[KeptTrial], float]
) -> dict[Value, list[float]]:
    """A number of each trial, by the value of a knob."""
    groups: dict[Value, list[float]] = defaultdict(list)
    for trial in trials:
        groups[trial.knobs[knob]].append(number(trial))
    return groups
