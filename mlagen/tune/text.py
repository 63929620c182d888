"""What a search found, as rows for whoever prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.tune.importance import effects, importance
from mlagen.tune.space import Knobs, differing
from mlagen.tune.store import KeptTrial, Store, Study, best_of, newest, reference_of
from mlagen.tune.tuner import Progress


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study in one row of `mlagen tune show`."""

    key: str
    kernel: str
    title: str
    judged: int
    running: int
    reference: float | None
    best: float | None
    gain: float | None
    confirmed: bool
    knobs: str


def row_of(store: Store, study: Study) -> StudyRow:
    """The study's newest state of the code."""
    trials = newest(store.trials(study))
    reference, best = reference_of(study, trials), store.winner(study) or best_of(trials)
    low = best.cost if best else None
    base = reference.cost if reference else None
    return StudyRow(
        study.question.key, study.question.name, study.question.title, len(trials),
        store.running(study), base, low, base / low if base and low else None,
        best is not None and best.confirmed == "yes",
        differing(best.knobs, study.reference) if best else "",
    )  # fmt: skip


def cost_text(study: Study, cost: float | None) -> str:
    """A cost with its unit."""
    if cost is None:
        return "-"
    if study.question.cost == "predicted":
        return f"{cost:.0f} cycles"
    return f"{cost:.4f} of the default"


def progress_text(progress: Progress, reference: Knobs) -> str:
    """One line of what a run has done."""
    minutes, seconds = divmod(int(progress.seconds), 60)
    parts = [f"{minutes}:{seconds:02}", f"{progress.judged} judged"]
    if progress.total > progress.judged:
        parts.append(f"{progress.total} known")
    parts += [f"{count} {verdict}" for verdict, count in sorted(progress.verdicts.items())]
    if progress.best is not None and progress.gain is not None:
        what = differing(progress.best.knobs, reference)
        parts.append(f"best {progress.gain:.4f}x: {what}")
    return ", ".join(parts)


def gain_range(first: KeptTrial, second: KeptTrial) -> tuple[float, float] | None:
    """How many times less `first` takes than `second`, over what both have samples of: corners."""
    a, b = first.outcome.samples, second.outcome.samples
    gains = [b[name][0] / a[name][0] for name in a.keys() & b.keys()
             if a[name] and b[name] and a[name][0]]  # fmt: skip
    return (min(gains), max(gains)) if gains else None


def facts(
    study: Study, trials: Sequence[KeptTrial], winner: KeptTrial | None
) -> list[tuple[str, str]]:
    """Name and value, one a line."""
    reference = reference_of(study, trials)
    told = [
        ("study", f"{study.question.key}: {study.question.title}"),
        ("problem", ", ".join(f"{k}={v}" for k, v in study.question.problem.items())),
        ("judged", f"{len(trials)}: {verdicts_text(trials)}"),
        ("default", cost_text(study, reference.cost if reference else None)),
    ]
    if winner is None:
        return [*told, ("best", "none is confirmed")]
    told.append(("best", cost_text(study, winner.cost)))
    told.append(("knobs", differing(winner.knobs, study.reference)))
    if reference is not None and reference.cost and winner.cost:
        gain = f"{reference.cost / winner.cost:.4f}x"
        if study.question.cost == "predicted" and (span := gain_range(winner, reference)):
            gain += f"; {span[0]:.4f}x to {span[1]:.4f}x over the corners of the sensitivity grid"
        told.append(("gain", gain))
    told.append(("artifact", winner.outcome.artifact[:12]))
    return told


def verdicts_text(trials: Sequence[KeptTrial]) -> str:
    """How many trials had which verdict."""
    verdicts = Counter(trial.outcome.verdict for trial in trials)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))


def trial_rows(study: Study, trials: Sequence[KeptTrial], count: int) -> list[tuple[str, ...]]:
    """The best trials, then the last of each other verdict."""
    costed = sorted((t for t in trials if t.cost is not None), key=lambda t: (t.cost, t.id))
    others = {trial.outcome.verdict: trial for trial in trials if trial.cost is None}
    return [
        (str(trial.id), trial.outcome.verdict, cost_text(study, trial.cost), trial.confirmed,
         differing(trial.knobs, study.reference), trial.outcome.message)
        for trial in (*costed[:count], *others.values())
    ]  # fmt: skip


TRIAL_COLUMNS = ("trial", "verdict", "cost", "confirmed", "knobs", "message")


def knob_rows(trials: Sequence[KeptTrial]) -> list[tuple[str, str, str]]:
    """Knobs by importance, with their values: the median cost in units of the knob's best value."""
    by_knob = effects(trials)
    return [
        (name, f"{part:.0%}",
         ", ".join(f"{value}: {ratio:.3f} ({count})" for value, ratio, count in by_knob[name]))
        for name, part in importance(trials)
    ]  # fmt: skip


KNOB_COLUMNS = ("knob", "of the variance", "value: median cost, best 1 (variants)")
