"""What a search was like, in pictures: best so far, what mattered, predicted against measured."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlagen.bench.figure import drawn, new_figure
from mlagen.disk import write_file
from mlagen.errors import ConfigError
from mlagen.tune.importance import importance
from mlagen.tune.space import differing, knobs_key
from mlagen.tune.store import Store, Study, Trial
from mlagen.tune.text import newest, reference_of

SUFFIXES = (".html", ".png")
_WIDE, _HIGH = 8.0, 4.5  # inches of a picture


def write_plots(store: Store, study: Study, path: Path) -> str:
    """Write the study's pictures, as one page or one image, whole or not at all; says what there
    is. ConfigError: nothing was judged, or the file's name ends in neither."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path}: plots are written as {' or '.join(SUFFIXES)}")
    trials = newest(store.trials(study))
    costed = [trial for trial in trials if trial.cost is not None]
    if not costed:
        raise ConfigError(f"no variant of study {study.question.key} has a cost: nothing to plot")
    pairs = both_costs(store, study)
    pictures = [_best_so_far, _importance, *([_predicted_measured] if pairs else [])]
    figure = new_figure(figsize=(_WIDE, _HIGH * len(pictures)))
    axes = figure.subplots(len(pictures), 1, squeeze=False)
    for draw, (axis,) in zip(pictures, axes, strict=True):
        draw(axis, study, costed, pairs)
    figure.suptitle(study.question.title)
    figure.tight_layout()
    if path.suffix == ".png":
        written = drawn(figure, ".png", dpi=110)
    else:
        written = _page(study, trials, drawn(figure, ".svg").decode()).encode()
    write_file(path, written)
    return f"{path}: {len(pictures)} pictures of {len(trials)} trials"


def _best_so_far(axis: Any, study: Study, costed: Sequence[Trial], pairs: Any) -> None:
    ordered = sorted(costed, key=lambda trial: trial.finished)
    best, line = math.inf, []
    for trial in ordered:
        best = min(best, trial.cost or math.inf)
        line.append(best)
    numbers = range(1, len(ordered) + 1)
    axis.plot(numbers, [trial.cost for trial in ordered], ".", color="#9aa5b1", label="variants")
    axis.plot(numbers, line, color="#1f6feb", label="best so far", drawstyle="steps-post")
    reference = reference_of(study, ordered)
    if reference is not None and reference.cost is not None:
        axis.axhline(reference.cost, color="#888888", linestyle=":", label="default")
    top = sorted(trial.cost or 0.0 for trial in ordered)[int(0.9 * (len(ordered) - 1))]
    axis.set_ylim(best - 0.05 * (top - best or best), top * 1.02)
    axis.set_xlabel("variants that passed, in order")
    unit = "cycles, worst corner" if study.question.cost == "predicted" else "of the default's time"
    axis.set_ylabel(unit)
    axis.legend()


def _importance(axis: Any, study: Study, costed: Sequence[Trial], pairs: Any) -> None:
    found = importance(costed)
    names = [name for name, _ in reversed(found)]
    axis.barh(names, [part for _, part in reversed(found)], color="#1f6feb")
    axis.set_xlabel("part of the costs' variance that the knob alone explains")


def both_costs(store: Store, study: Study) -> list[tuple[float, float]]:
    """(predicted, measured) of variants that another study of the same call has the other cost of,
    each in units of its reference."""
    own = study.question
    for other in store.studies():
        asked = other.question
        same = (own.name, own.target, own.problem, own.shape) == (
            asked.name, asked.target, asked.problem, asked.shape,
        )  # fmt: skip
        if same and own.cost != asked.cost:
            two = {asked.cost: _relative(store, other), own.cost: _relative(store, study)}
            common = sorted(two["predicted"].keys() & two["measured"].keys())
            return [(two["predicted"][key], two["measured"][key]) for key in common]
    return []


def _relative(store: Store, study: Study) -> dict[str, float]:
    trials = newest(store.trials(study))
    reference = reference_of(study, trials)
    if reference is None or not reference.cost:
        return {}
    return {knobs_key(t.knobs): t.cost / reference.cost for t in trials if t.cost is not None}


def _predicted_measured(
    axis: Any, study: Study, costed: Sequence[Trial], pairs: list[tuple[float, float]]
) -> None:
    axis.plot([one for one, _ in pairs], [two for _, two in pairs], ".", color="#1f6feb")
    low, high = min(min(pair) for pair in pairs), max(max(pair) for pair in pairs)
    axis.plot([low, high], [low, high], color="#888888", linestyle=":")
    axis.set_xlabel("predicted, of the default")
    axis.set_ylabel("measured, of the default")


def _page(study: Study, trials: Sequence[Trial], svg: str) -> str:
    verdicts: dict[str, int] = defaultdict(int)
    for trial in trials:
        verdicts[trial.outcome.verdict] += 1
    rows = "".join(
        f"<tr><td>{trial.id}</td><td>{trial.outcome.verdict}</td><td>{trial.cost or ''}</td>"
        f"<td>{html.escape(differing(trial.knobs, study.reference))}</td>"
        f"<td>{html.escape(trial.outcome.message)}</td></tr>"
        for trial in sorted(trials, key=lambda t: (t.cost is None, t.cost or 0.0, t.id))
    )
    title = html.escape(study.question.title)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title>"
        "<style>body{font:14px system-ui;max-width:70em;margin:2em auto}svg{max-width:100%}"
        "td,th{padding:.1em .6em;text-align:left;font-variant-numeric:tabular-nums}</style>"
        f"<h1>{title}</h1><p>{len(trials)} variants: {told}</p>{svg[svg.index('<svg') :]}"
        "<table><tr><th>trial<th>verdict<th>cost<th>knobs<th>message</tr>" + rows + "</table>"
    )
