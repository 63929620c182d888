"""Pictures, and which knobs mattered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_judges import cost_of
from toy_question import SPACE, question

from mlagen.errors import ConfigError
from mlagen.pages import PAGE
from mlagen.tune import plots
from mlagen.tune.importance import effects, importance
from mlagen.tune.plots import both_costs, write_plots
from mlagen.tune.store import Store, Study
from mlagen.tune.values import TrialOutcome


def judged(store: Store, count: int = 45, **asked: object) -> Study:
    study = store.study(question(**asked), SPACE.default)
    for number in range(count):
        knobs = SPACE.variant(number)
        claimed = store.claim(study, knobs, "now")
        assert claimed is not None
        wrong = knobs["b"] == "z"
        cost = cost_of(knobs) * (1.5 if asked else 1.0)
        store.finish(claimed, TrialOutcome("wrong") if wrong else TrialOutcome("passed", cost=cost))
    return study


def test_the_knob_that_mattered_is_told(store: Store) -> None:
    trials = store.trials(judged(store))
    found = importance(trials)
    assert [name for name, _ in found] == ["a", "c", "b"]
    assert found[0][1] > 0.8
    assert sum(part for _, part in found) <= 1 + 1e-9
    value, ratio, count = effects(trials)["a"][0]
    assert (value, ratio, count) == (3, 1.0, 6)


@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_plots_are_written(store: Store, tmp_path: Path, suffix: str) -> None:
    study = judged(store)
    path = tmp_path / "deeper" / f"plots{suffix}"
    assert "2 pictures of 45 trials" in write_plots(store, study, path)
    data = path.read_bytes()
    if suffix == ".png":
        assert data.startswith(b"\x89PNG")
    else:
        page = data.decode()
        assert page.count("<svg") == 1
        assert "http://" not in page.split("<table>")[1], "the page needs nothing from elsewhere"
        assert "15 wrong" in page
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_predicted_stands_against_measured_where_both_are_known(
    store: Store, tmp_path: Path
) -> None:
    study = judged(store)
    assert both_costs(store, study) == []
    judged(store, cost="measured", device={"name": "a GPU"})
    pairs = both_costs(store, study)
    assert len(pairs) == 30
    assert all(one == pytest.approx(two) for one, two in pairs)  # each of its own default
    assert "3 pictures" in write_plots(store, study, tmp_path / "p.png")


def test_what_cannot_be_plotted_is_told(store: Store, tmp_path: Path) -> None:
    study = judged(store, count=0)
    with pytest.raises(ConfigError, match="nothing to plot"):
        write_plots(store, study, tmp_path / "p.png")
    with pytest.raises(ConfigError, match=r"\.html or \.png"):
        write_plots(store, study, tmp_path / "p.pdf")
    assert not list(tmp_path.glob("p.*"))


@pytest.mark.parametrize("count", [1, 2, 7, 45])
def test_every_point_is_shown_and_counts_are_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int
) -> None:
    figures: list[Any] = []
    made = plots.new_figure

    def kept(**options: Any) -> Any:
        figures.append(made(**options))
        return figures[-1]

    monkeypatch.setattr(plots, "new_figure", kept)
    write_plots(store, judged(store, count=count), tmp_path / "p.png")
    best, mattered = figures[0].axes
    (low, high), shown = best.get_ylim(), best.get_lines()[0].get_ydata()
    assert all(low <= cost <= high for cost in shown)
    assert all(float(tick).is_integer() for tick in best.get_xticks())
    words = [text.get_text() for text in mattered.texts]
    assert any("from 8 variants on" in text for text in words) == (len(shown) < 8)
    assert bool(mattered.patches) == (len(shown) >= 8)


def test_the_page_is_as_dark_as_it_is_asked_to_be(store: Store, tmp_path: Path) -> None:
    write_plots(store, judged(store), tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    drawing = page[page.index("<svg") : page.index("</svg>")]
    assert "var(--ink)" in drawing and "var(--bg)" in drawing and "prefers-color-scheme" in page
    for colour in (*(c for pair in PAGE.values() for c in pair), "#000000"):
        assert colour not in drawing
