"""No operation of a shipped schedule, an example or a page's kernel may be left out.

Which forms are tried depends on the sources: a change of these meets others. All are tried where
MLAGEN_ACCEPTANCE is set, as by `python tests/deleted/run.py`.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from attempts import Outcome, attempt, attempts_by_value, edits, harmless
from schedule_forms import PAGES, ROOT, Form, candidates, drawn, examples, forms, written
from sources import sources

from mlagen.codegen.schedules import names as shipped_names

WHOLE = "MLAGEN_ACCEPTANCE" in os.environ
SALT = sources("mlagen", "schedules", "templates")
PROBLEMS, EDITED = 1, 3  # of each shipped schedule; forms whose statements are edited


@pytest.fixture(scope="module")
def shipped() -> list[Form]:
    return forms(candidates() if WHOLE else drawn(PROBLEMS, SALT))


@pytest.fixture(scope="module")
def tutorials(tmp_path_factory: pytest.TempPathFactory) -> list[Form]:
    return [*examples(), *written(tmp_path_factory.mktemp("pages"))]


def _survivors(outcomes: list[Outcome]) -> list[str]:
    assert outcomes
    return [str(outcome) for outcome in outcomes if not harmless(outcome)]


def test_each_kernel_declares_its_plain_loop(shipped: list[Form], tutorials: list[Form]) -> None:
    names = {form.kernel for form in shipped}
    assert names == set(shipped_names())
    pages = {
        path.name for path in (ROOT / "docs").glob("*.md") if "\n@schedule(" in path.read_text()
    }
    assert pages == {*PAGES, "add_a_target.md"}  # the last one's is refused when it is read
    assert [str(form) for form in (*shipped, *tutorials) if form.run()[1].plain is None] == []


def test_no_operation_of_a_shipped_schedule_may_be_left_out(shipped: list[Form]) -> None:
    assert _survivors([tried() for form in shipped for tried in attempts_by_value(form)]) == []


def test_no_statement_of_a_shipped_schedule_may_be_left_out(shipped: list[Form]) -> None:
    some = shipped if WHOLE else random.Random(SALT).sample(shipped, EDITED)
    assert _survivors([attempt(form, edit) for form in some for edit in edits(form)]) == []


def test_nothing_of_an_example_or_a_page_may_be_left_out(tutorials: list[Form]) -> None:
    assert len(tutorials) >= 6
    for form in tutorials:
        tried = [x() for x in attempts_by_value(form)]
        assert _survivors([*tried, *(attempt(form, edit) for edit in edits(form))]) == []


def test_it_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that no plain loop names may be left out: these tests see that."""
    form = next(x for x in written(tmp_path) if x.kernel.endswith("row_sums.py:row_sums"))
    function, schedule, templates = form.run()
    assert schedule.plain.tile == ("copy X", "read X", "add")
    for plain in (None, replace(schedule.plain, tile=("copy X", "read X"))):
        made = function, replace(schedule, plain=plain), templates
        monkeypatch.setattr(Form, "run", lambda self, made=made: made)
        outcomes = [tried() for tried in attempts_by_value(form)]
        assert [x for x in outcomes if x.gone == {"add"} and not harmless(x)]
