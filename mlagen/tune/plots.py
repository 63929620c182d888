"""What a search was like, in pictures: best so far, what mattered, predicted against measured."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlagen.bench.figure import drawn, new_figure
from mlagen.disk import MARK, write_file
from mlagen.errors import ConfigError
from mlagen.pages import PAGE, PALETTE, style
from mlagen.tune.importance import importance
from mlagen.tune.space import differing, knobs_key
from mlagen.tune.store import KeptTrial, Store, Study, newest, reference_of
from mlagen.tune.text import verdicts_text

SUFFIXES = (".html", ".png")
_WIDE, _HIGH = 8.0, 4.5  # inches of a picture
_ENOUGH = 8  # variants; of fewer, what mattered is chance
_INK, _SOFT = PAGE["ink"][0], PAGE["soft"][0]
_BLUE, _GREY = PALETTE["matrix"].light, PALETTE["scalar"].light


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
    figure = new_figure(figsize=(_WIDE, _HIGH * len(pictures)), facecolor=PAGE["bg"][0])
    axes = figure.subplots(len(pictures), 1, squeeze=False)
    for draw, (axis,) in zip(pictures, axes, strict=True):
        draw(axis, study, costed, pairs)
        _dressed(axis)
    figure.suptitle(study.question.title, color=_INK)
    figure.tight_layout()
    if path.suffix == ".png":
        written = drawn(figure, ".png", dpi=110)
    else:
        written = _page(study, trials, drawn(figure, ".svg").decode()).encode()
    write_file(path, written)
    return f"{path}: {len(pictures)} pictures of {len(trials)} trials"


def _dressed(axis: Any) -> None:
    """The page's colours for all that is no data."""
    axis.set_facecolor(PAGE["bg"][0])
    axis.tick_params(colors=_INK)
    for part in (axis.xaxis.label, axis.yaxis.label):
        part.set_color(_INK)
    for spine in axis.spines.values():
        spine.set_color(_INK)
    if shown := axis.get_legend():
        shown.get_frame().set(facecolor=PAGE["bg"][0], edgecolor=_SOFT)
        for text in shown.get_texts():
            text.set_color(_INK)


def _best_so_far(axis: Any, study: Study, costed: Sequence[KeptTrial], pairs: Any) -> None:
    ordered = sorted(costed, key=lambda trial: trial.finished)
    best, line = math.inf, []
    for trial in ordered:
        best = min(best, trial.cost or math.inf)
        line.append(best)
    numbers = range(1, len(ordered) + 1)
    axis.plot(numbers, [trial.cost for trial in ordered], ".", color=_GREY, label="variants")
    axis.plot(numbers, line, color=_BLUE, label="best so far", drawstyle="steps-post")
    reference = reference_of(study, ordered)
    if reference is not None and reference.cost is not None:
        axis.axhline(reference.cost, color=_SOFT, linestyle=":", label="default")
    axis.set_xlabel("variants that passed, in order")
    axis.set_xlim(0, len(ordered) + 1)
    axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    unit = "cycles, worst corner" if study.question.cost == "predicted" else "of the default's time"
    axis.set_ylabel(unit)
    axis.legend()


def _importance(axis: Any, study: Study, costed: Sequence[KeptTrial], pairs: Any) -> None:
    found = importance(costed) if len(costed) >= _ENOUGH else []
    if not found:
        told = f"what mattered is told from {_ENOUGH} variants on; here are {len(costed)}"
        axis.text(0.5, 0.5, told, ha="center", color=_SOFT)
        axis.set_axis_off()
        return
    names = [name for name, _ in reversed(found)]
    axis.barh(names, [part for _, part in reversed(found)], color=_BLUE)
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
    axis: Any, study: Study, costed: Sequence[KeptTrial], pairs: list[tuple[float, float]]
) -> None:
    axis.plot([one for one, _ in pairs], [two for _, two in pairs], ".", color=_BLUE)
    low, high = min(min(pair) for pair in pairs), max(max(pair) for pair in pairs)
    axis.plot([low, high], [low, high], color=_SOFT, linestyle=":")
    axis.set_xlabel("predicted, of the default")
    axis.set_ylabel("measured, of the default")


def _page(study: Study, trials: Sequence[KeptTrial], svg: str) -> str:
    rows = "".join(
        f"<tr><td>{trial.id}</td><td>{trial.outcome.verdict}</td><td>{trial.cost or ''}</td>"
        f"<td>{html.escape(differing(trial.knobs, study.reference))}</td>"
        f"<td>{html.escape(trial.outcome.message)}</td></tr>"
        for trial in sorted(trials, key=lambda t: (t.cost is None, t.cost or 0.0, t.id))
    )
    title = html.escape(study.question.title)
    drawing = svg[svg.index("<svg") :]
    colours = {"ink": _INK, "soft": _SOFT, "matrix": _BLUE, "scalar": _GREY, "bg": PAGE["bg"][0]}
    for name, colour in colours.items():
        drawing = drawing.replace(colour, f"var(--{name})")  # as light or dark as the page
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{MARK}">'
        f"<title>{title}</title><style>{style()}svg {{ max-width: 100%; height: auto; }}</style>"
        f"</head><body><main><h1>{title}</h1><p>{len(trials)} variants: {verdicts_text(trials)}"
        f"</p>{drawing}"
        "<table><tr><th>trial</th><th>verdict</th><th>cost</th><th>knobs</th><th>message</th></tr>"
        f"{rows}</table></main></body></html>\n"
    )
