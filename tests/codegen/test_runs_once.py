"""A build runs the schedule function once, wherever its knobs are given."""

from __future__ import annotations

import pytest

import mlagen
from mlagen.app.build import build_artifact
from mlagen.app.texts import BuildTexts, build_from_text, view_from_text
from mlagen.dsl import ScheduleFunction
from mlagen.errors import ConfigError

KERNEL = "mla_prefill_reduce"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the schedule functions that ran."""
    names: list[str] = []
    run = ScheduleFunction.run

    def counted(self: ScheduleFunction, *given: object) -> None:
        names.append(self.name)
        run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ScheduleFunction, "run", counted)
    return names


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_artifact(KERNEL, {"num_heads": 2}, {}),
        lambda: build_artifact(KERNEL, {"num_heads": 2}, {"ahead": 2}),
        lambda: build_artifact(KERNEL, {"num_heads": 2, "ahead": 2}, {"waves": 4}),
        lambda: build_from_text(KERNEL, BuildTexts(("num_heads=2",), ("ahead=2",))),
        lambda: view_from_text(KERNEL, BuildTexts(("num_heads=2",), ("ahead=2",))),
        lambda: mlagen.build(KERNEL, num_heads=2, ahead=2),
    ],
    ids=["defaults", "knob", "knob among the fields", "texts", "view", "mlagen.build"],
)
def test_the_schedule_function_runs_once(build, runs):
    build()
    assert runs == [KERNEL]


def test_what_is_neither_field_nor_knob_is_refused_by_the_problem(runs):
    with pytest.raises(ConfigError, match="has no field 'aheed'"):
        build_artifact(KERNEL, {"num_heads": 2, "aheed": 2}, {})
    with pytest.raises(ConfigError, match="has no field 'num_head'") as caught:
        build_artifact(KERNEL, {"num_head": 2, "ahead": 2}, {})
    assert "did you mean num_heads?" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="has no knob 'aheed'") as caught:
        build_artifact(KERNEL, {"num_heads": 2}, {"aheed": 2})
    assert "did you mean 'ahead'?" in str(caught.value.hint)
