"""Variants: which one a problem takes, what is refused, and what the manifest says of it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from mlagen.attention.latent.facts import Facts, facts_of
from mlagen.attention.latent.order import KEYS_AS_ROWS, SEESAW
from mlagen.dsl import Knobs, Variant
from mlagen.dsl.variant import taken
from mlagen.errors import BinaryError, ConfigError, ScheduleError
from mlagen.request import BuildTexts, build_from_text


@dataclass(frozen=True)
class Problem:
    rows: int


def nothing(*given):
    return None


SMALL = Variant("small", "up to 8 rows", nothing, nothing, serves=lambda p: p.rows <= 8,
                usual=lambda p, knobs: str(knobs.get("persistent", 0)) != "1")  # fmt: skip
LARGE = Variant("large", "any number of rows", nothing, nothing)
FEW = Variant("few", "up to 4 rows", nothing, nothing, serves=lambda p: p.rows <= 4)


@pytest.mark.parametrize(
    "rows, chosen, name",
    [
        (8, {}, "small"), (9, {}, "large"), (8, {"variant": "large"}, "large"),
        (8, {"persistent": "1"}, "large"), (8, {"persistent": 1, "variant": "small"}, "small"),
    ],
)  # fmt: skip
def test_the_usual_one_is_the_first_that_serves(rows, chosen, name):
    knobs = Knobs(chosen)
    assert taken((SMALL, LARGE), Problem(rows), knobs).name == name
    assert knobs.values == {"variant": name}


@pytest.mark.parametrize(
    "variants, chosen, message",
    [
        ((SMALL, LARGE), {"variant": "small"}, "variant=small does not serve this problem"),
        ((SMALL, LARGE), {"variant": "smal"}, "'smal' is not among its choices"),
        ((SMALL, FEW), {}, "no variant serves"),
    ],
)
def test_what_does_not_serve_is_refused(variants, chosen, message):
    with pytest.raises(ConfigError, match=message):
        taken(variants, Problem(9), Knobs(chosen))


def test_two_of_one_name_are_refused():
    with pytest.raises(ScheduleError, match="two variants have one name"):
        taken((SMALL, SMALL), Problem(3), Knobs({}))


@pytest.mark.parametrize(
    "knobs, variant, facts",
    [
        ([], "swap_ab", Facts(KEYS_AS_ROWS, 64, swap_ab=True, combine="blocks")),
        (["variant=seesaw"], "seesaw", Facts(SEESAW, 64)),
        (["persistent=1"], "seesaw", Facts(SEESAW, 64, items="several", combine="fix_up")),
    ],
)
def test_the_manifest_carries_name_and_facts(knobs, variant, facts):
    made = build_from_text("mla_decode_sm90", BuildTexts(["num_heads=16"], knobs)).manifest
    assert (made.variant, facts_of(made)) == (variant, facts)


@pytest.mark.parametrize(
    "facts",
    [
        {}, {"rows": 64}, {"order": {"tile": 64}, "rows": 64},
        {"order": {"tile": 1 << 40, "first_columns": [0], "late_columns": 512}, "rows": 64},
        {"order": {"tile": 64, "first_columns": [0], "late_columns": 512}, "rows": 0},
        {"order": {"tile": 64, "first_columns": [0], "late_columns": 512}, "rows": 64,
         "combine": "nobody"},
    ],
    ids=str,
)  # fmt: skip
def test_a_strangers_facts_are_refused(facts):
    made = build_from_text("mla_decode_merge_gfx950", BuildTexts(["num_heads=3"], [])).manifest
    with pytest.raises(BinaryError, match="does not say how its variant computes"):
        facts_of(msgspec.structs.replace(made, facts=facts))
