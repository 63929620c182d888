"""Variants: which one a problem takes, what is refused, and what the manifest says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import msgspec
import pytest

from mlagen.app.texts import BuildTexts, build_from_text
from mlagen.attention.latent.facts import Facts, facts_of
from mlagen.attention.latent.order import KEYS_AS_ROWS, SEESAW
from mlagen.attention.prefill.facts import TILES
from mlagen.attention.prefill.facts import facts_of as prefill_facts
from mlagen.dsl import Knobs, Variant
from mlagen.dsl.variant import taken
from mlagen.errors import BinaryError, ConfigError, ScheduleError
from mlagen.families.mla_decode import costs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.unit import unit_of
from mlagen.families.split_merge.facts import MergeFacts
from mlagen.families.split_merge.facts import facts_of as merge_facts
from mlagen.verify import verify


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


def of_16(known):
    return costs.of_rows(known, MlaDecodeConfig(16))


@pytest.mark.parametrize(
    "knobs, variant, facts",
    [
        ([], "swap_ab", Facts(KEYS_AS_ROWS, 64, combine="blocks", costs=of_16(costs.SWAP_AB))),
        (["variant=seesaw"], "seesaw", Facts(SEESAW, 64, costs=of_16(costs.SEESAW))),
        (
            ["persistent=1"],
            "seesaw",
            Facts(SEESAW, 64, items="several", combine="fix_up", costs=of_16(costs.SEESAW)),
        ),
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
        {"order": {"tile": 64, "first_columns": [0], "late_columns": 512}, "rows": 64,
         "costs": {"tile": 0.0}},
        {"order": {"tile": 64, "first_columns": [0], "late_columns": 512}, "rows": 64,
         "costs": {"crowd": []}},
        {"order": {"tile": 64, "first_columns": [0], "late_columns": 512}, "rows": 64,
         "costs": {"start": math.nan}},
    ],
    ids=str,
)  # fmt: skip
def test_a_strangers_facts_are_refused(facts):
    made = build_from_text("mla_decode_merge_gfx950", BuildTexts(["num_heads=3"], [])).manifest
    with pytest.raises(BinaryError, match="does not say how it computes"):
        facts_of(msgspec.structs.replace(made, facts=facts))


def test_a_plan_needs_costs():
    """An older manifest has none: it is read, and its kernel plans nothing by other costs."""
    made = build_from_text("mla_decode_gfx950", BuildTexts(["num_heads=16"], [])).manifest
    older = {name: fact for name, fact in made.facts.items() if name != "costs"}
    assert unit_of(made).costs == costs.on_mi355x(MlaDecodeConfig(16), 64)
    made = msgspec.structs.replace(made, facts=older)
    assert facts_of(made).rows == 64
    with pytest.raises(BinaryError, match="does not say what its work costs"):
        unit_of(made)


MLA_PREFILL = ("num_heads=2", "num_kv_heads=2", "ragged=true")
AITER = ("dtype=fp8_e4m3", "output_dtype=bf16", "page_size=1")


@pytest.mark.parametrize(
    "kernel, sets, knobs, items",
    [
        ("mha_prefill_v2", ("num_heads=1", "num_kv_heads=1"), (), "one"),
        ("mla_prefill_v2", MLA_PREFILL, (), "one"),
        ("mla_prefill_v2", MLA_PREFILL, ("grid=persistent",), "several"),
        ("mla_prefill_v2", MLA_PREFILL + AITER, ("grid=persistent", "arguments=aiter"), "aiter"),
    ],
)
def test_operations_of_prefill_state_its_items(kernel, sets, knobs, items):
    made = build_from_text(kernel, BuildTexts([*sets], [*knobs]))
    facts = prefill_facts(made)
    assert facts.items == items
    assert {name: getattr(facts, name) for name in TILES} == {
        name: made.manifest.knobs[name] for name in TILES
    }
    for missing in ("items", "kv_block"):
        told = {name: fact for name, fact in made.manifest.facts.items() if name != missing}
        older = replace(made, manifest=msgspec.structs.replace(made.manifest, facts=told))
        with pytest.raises(BinaryError, match=f"how it computes: .*`{missing}`") as error:
            verify(older, lengths=(70,), num_keys=(90,))
        assert error.value.hint == "build it again with this version of mlagen"


@pytest.mark.parametrize(
    "kernel, facts",
    [
        ("mla_decode_merge_gfx950", MergeFacts(running=True, slot_rows=0)),
        ("mla_decode_merge_sm90", MergeFacts(running=False, slot_rows=64)),
        ("mla_decode_merge_sm100", MergeFacts(running=False, slot_rows=0)),
    ],
)
def test_operations_of_merges_state_their_slots(kernel, facts):
    made = build_from_text(kernel, BuildTexts(["num_heads=3"], []))
    assert merge_facts(made) == facts
    takes = any(arg.name == "slot_rows" for arg in made.manifest.args)
    assert takes == (not facts.slot_rows)
