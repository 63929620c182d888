"""Spaces from schedules, and the order in which they are searched."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from toy_judges import cost_of
from toy_question import SPACE

from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError, MissingError
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.tune.search import make_search
from mlagen.tune.space import Dimension, SearchSpace, knobs_key, space_of

REDUCE = MlaReduceConfig(num_heads=2)


def test_variants_are_all_combinations_the_default_first() -> None:
    variants = list(SPACE.variants())
    assert len({knobs_key(knobs) for knobs in variants}) == SPACE.size == 45
    assert variants[0] == SPACE.default == {"a": 0, "b": "x", "c": 8}
    assert all(SPACE.holds(knobs) for knobs in variants)
    assert not SPACE.holds({"a": 0, "b": "x"})
    assert not SPACE.holds({"a": 9, "b": "x", "c": 8})


def test_the_space_is_what_the_schedule_declares() -> None:
    reduce = load("mla_prefill_reduce")
    declared = schedule_of(reduce, REDUCE, {}).declared
    space = space_of(reduce, REDUCE, {})
    assert {d.name: d.choices for d in space.dimensions} == {
        name: knob.choices for name, knob in declared.items() if not knob.setting
    }
    # A setting is tried where it is asked for, and nowhere else.
    assert declared["lds_dma_wait"].setting
    asked = space_of(reduce, REDUCE, {"lds_dma_wait": "counted,drain"})
    assert {d.name: d.choices for d in asked.dimensions}["lds_dma_wait"] == ("counted", "drain")
    assert space_of(reduce, REDUCE, {"waves": "4,2"}).dimensions[1].choices == (4, 2)
    assert space_of(reduce, REDUCE, {"waves": "4"}).default["waves"] == 4


def test_choices_that_change_the_call_are_left_out_unless_asked_for() -> None:
    prefill, problem = load("mla_prefill_v2"), MlaConfigV2(num_heads=1, num_kv_heads=1)
    declared = schedule_of(prefill, problem, {}).declared
    others = {name: str(k.default) for name, k in declared.items() if name != "grid"}  # quick
    space = space_of(prefill, problem, others)
    grid = next(d for d in space.dimensions if d.name == "grid")
    assert grid.choices == ("static",)
    assert any(line.startswith("grid=persistent") for line in space.left_out)
    with pytest.raises(ConfigError, match="ragged"):
        space_of(prefill, problem, {**others, "grid": "static,persistent"})
    ragged = MlaConfigV2(num_heads=1, num_kv_heads=1, ragged=True)
    assert (
        space_of(prefill, ragged, {**others, "grid": "persistent"}).default["grid"] == "persistent"
    )
    with pytest.raises(ConfigError, match="other arguments"):
        space_of(prefill, ragged, {**others, "grid": "static,persistent"})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"wafes": "4"}, "unknown knob 'wafes'"),
        ({"waves": "5"}, "not among its choices"),
        ({"waves": "4,5"}, "'5' is not among"),
        ({"waves": ","}, "the space is empty"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space_of(load("mla_prefill_reduce"), REDUCE, limits)


def searched(sampler: str, count: int, **more: object) -> list[tuple[dict, float]]:
    options = {"seed": 1, "first": [SPACE.default], "budget": None, **more}
    search = make_search(SPACE, sampler, **options)  # type: ignore[arg-type]
    found = []
    for _ in range(count):
        knobs = search.ask()
        if knobs is None:
            break
        cost = None if knobs["b"] == "z" else cost_of(knobs)
        search.tell(knobs, cost)
        found.append((knobs, cost if cost is not None else float("inf")))
    return found


@pytest.mark.parametrize("sampler", ["exhaustive", "descent", "tpe", "random", "genetic"])
def test_every_search_ends_after_every_variant_once(sampler: str) -> None:
    found = searched(sampler, 100)
    assert found[0][0] == SPACE.default
    assert len({knobs_key(knobs) for knobs, _ in found}) == len(found) == SPACE.size
    assert min(cost for _, cost in found) == 10


def test_tpe_learns() -> None:
    """In a space of 6^5 it is far better than chance with as many trials."""
    space = SearchSpace(tuple(Dimension(name, tuple(range(6))) for name in "abcde"))

    def least(sampler: str) -> float:
        total = 0.0
        for seed in range(3):
            search = make_search(space, sampler, seed=seed, first=(), budget=None)
            costs = []
            for _ in range(90):
                knobs = search.ask()
                assert knobs is not None
                costs.append(float(sum((int(value) - 4) ** 2 for value in knobs.values())))
                search.tell(knobs, costs[-1])
            total += min(costs)
        return total

    assert least("tpe") < least("random")


def test_descent_follows_the_best_one_knob_at_a_time() -> None:
    """Where knobs do not depend on each other it needs their choices' sum, not their product."""
    space = SearchSpace(tuple(Dimension(name, tuple(range(6))) for name in "abcde"))
    search = make_search(space, "descent", seed=0, first=[space.default], budget=None)
    costs = []
    for _ in range(1 + 5 * 5 * 2):
        knobs = search.ask()
        assert knobs is not None
        costs.append(float(sum((int(value) - 4) ** 2 for value in knobs.values())))
        search.tell(knobs, costs[-1])
    assert min(costs) == 0


def test_small_spaces_are_tried_out_and_large_ones_are_not() -> None:
    assert make_search(SPACE, "auto", seed=0, first=(), budget=None).name == "exhaustive"
    assert make_search(SPACE, "auto", seed=0, first=(), budget=10).name == "tpe"
    large = SearchSpace(tuple(Dimension(name, tuple(range(9))) for name in "abcd"))
    assert make_search(large, "auto", seed=0, first=(), budget=None).name == "tpe"


def test_what_is_known_is_not_asked_for_again() -> None:
    for sampler in ("exhaustive", "tpe"):
        search = make_search(SPACE, sampler, seed=0, first=(), budget=None)
        for knobs in list(SPACE.variants())[:40]:
            search.tell(knobs, cost_of(knobs))
        asked = [knobs_key(knobs) for knobs in iter(search.ask, None)]
        assert sorted(asked) == sorted(map(knobs_key, list(SPACE.variants())[40:]))


def test_the_same_seed_asks_the_same() -> None:
    first, again, other = (searched("tpe", 30, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert any(a != b for a, b in zip(first, other, strict=True)) and len(list(pairwise(first)))


def test_unknown_samplers_and_a_missing_optuna_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        make_search(SPACE, "rndom", seed=0, first=(), budget=None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingError, match="not installed"):
        make_search(SPACE, "tpe", seed=0, first=(), budget=None)
    assert make_search(SPACE, "exhaustive", seed=0, first=(), budget=None).ask() is not None
