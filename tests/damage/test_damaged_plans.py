"""Kernels whose plan somebody wrote over: each word of a record, one at a time. A run ends, reads
and writes nothing but its call's own memory, and what is wrong is a row of its own.

    MLAGEN_ACCEPTANCE=1 python -m pytest tests/damage      # all words of all forms, some minutes
"""

from __future__ import annotations

from typing import Any

import pytest
from damaged import HOW, Damaging, cycled
from sparse_calls import artifact

from mlagen.app.build import build_artifact
from mlagen.attention.latent.sm_90a.seesaw import output
from mlagen.family import family_of

ITEM = ("sequence", "query", "rows", "above", "behind", "first", "end", "slot", "lse_at",
        "kv_head", "taken", "from")  # fmt: skip
E4M3, ROPE = {"cache_dtype": "fp8_e4m3"}, {"cache_dtype": "fp8_rope_aware"}
PRODUCTS = {"cache_dtype": "fp8_e4m3", "dtype": "fp8_e4m3", "compute": "fp8"}
PARTS = {"lengths": (3, 260), "split_keys": 128}
TOGETHER = {"lengths": (3, 260), "together": 2}
# Problems and knobs by a name, and how a call is divided, of each target's own.
Form = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
PERSISTENT = {"persistent": 1}
SHARED = {"lengths": (700, 3, 700), "blocks": 2}
MASKED = {"q_len": 2, "mask": "sliding_window_causal[100]"}
# Of all targets.
ALL: dict[str, Form] = {
    "many": ({"num_heads": 40, "q_len": 2}, {}, PARTS),
    "many of KV heads": ({"num_heads": 80, "num_kv_heads": 2, "page_size": 16}, {}, PARTS),
    "many of one row a page": ({"num_heads": 40, "page_size": 1}, {}, PARTS),
    "many e4m3": ({"num_heads": 64, **E4M3, "dtype": "fp8_e4m3"}, {}, PARTS),
    "many rope-aware": ({"num_heads": 64, **ROPE, "dtype": "fp8_rope_aware"}, {}, PARTS),
    "many products": ({"num_heads": 64, **PRODUCTS}, {}, PARTS),
    "window": ({"num_heads": 64, **MASKED}, {}, PARTS),
    "persistent": ({"num_heads": 64}, PERSISTENT, SHARED),
    "persistent, window": ({"num_heads": 40, **MASKED}, PERSISTENT, SHARED),
}
OF_SHARES = [form for form, (_, knobs, _) in ALL.items() if knobs == PERSISTENT]
OF_BLACKWELL: dict[str, Form] = {
    "few": ({"num_heads": 8}, {}, PARTS),
    "a pair": ({"num_heads": 128}, {}, PARTS),
    "a pair, e4m3": ({"num_heads": 128, **E4M3, "dtype": "fp8_e4m3"}, {}, PARTS),
    "a pair, persistent": ({"num_heads": 128}, PERSISTENT, SHARED | {"blocks": 4}),
    "chunk": ({"num_heads": 8, "q_len": 2, "mask": "chunked_causal[100]"}, {}, PARTS),
}
FORMS: dict[str, dict[str, Form]] = {
    "sm90": {
        "few": ({"num_heads": 8}, {}, TOGETHER),
        "few of one row a page": ({"num_heads": 10, "num_kv_heads": 5, "page_size": 1}, {}, PARTS),
        "few e4m3": ({"num_heads": 8, **E4M3}, {}, TOGETHER),
        "few rope-aware": ({"num_heads": 8, **ROPE, "dtype": "fp8_rope_aware"}, {}, TOGETHER),
        "few products": ({"num_heads": 16, **PRODUCTS}, {}, TOGETHER),
        **ALL,
    },
    "sm100": {**OF_BLACKWELL, **ALL},
    "gfx950": {
        "few": ({"num_heads": 8}, {}, PARTS),
        "wide": ({"num_heads": 128}, {}, PARTS),
        "wide e4m3": ({"num_heads": 128, **E4M3}, {}, PARTS),
        "chunk": ({"num_heads": 8, "q_len": 2, "mask": "chunked_causal[100]"}, {}, PARTS),
        **ALL,
    },
}
CASES = [(target, form) for target, forms in FORMS.items() for form in forms]


def built(target: str, form: str) -> tuple[Any, dict[str, Any]]:
    fields, knobs, shape = FORMS[target][form]
    return artifact_of(f"mla_decode_{target}", fields, knobs), shape


def artifact_of(name: str, fields: dict[str, Any], knobs: dict[str, Any]) -> Any:
    if name.endswith("gfx950"):
        return build_artifact(name, fields, knobs)
    return artifact(name, fields, **knobs)


def run(made: Any, shape: dict[str, Any], damaging: Damaging) -> dict[str, Any]:
    """A call; the tensors of its launch."""
    family = family_of(made)
    kind = family.kind(made.manifest.problem_type)
    inputs = kind.inputs(made.manifest.problem, data="realistic", seed=3, **shape)
    kind.trial(inputs).planned(made).run(made, damaging)
    return damaging.tensors


def all_of(table: str, column: int, made: Any, shape: dict[str, Any]) -> None:
    """In as many runs as each of `HOW` has a record of the table."""
    first = 0
    while first < len(HOW):
        damaging = Damaging(table, column, first)
        rows = run(made, shape, damaging)[table].shape[0]
        assert not damaging.wrong(), cycled(first, rows)
        first += rows


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that never comes is asked for a few times, and not for a second."""
    monkeypatch.setattr(output, "MOST_ASKS", 50)


@pytest.mark.parametrize("column", ITEM)
@pytest.mark.parametrize(("target", "form"), CASES)
def test_a_word_of_an_item(target: str, form: str, column: str) -> None:
    made, shape = built(target, form)
    all_of("items", ITEM.index(column), made, shape)


@pytest.mark.parametrize("form", OF_SHARES)
@pytest.mark.parametrize("target", FORMS)
def test_whose_items_are(target: str, form: str) -> None:
    made, shape = built(target, form)
    all_of("shares", 0, made, shape)


@pytest.mark.parametrize("form", ["few", "few e4m3", "few rope-aware", "few products", *OF_SHARES])
def test_how_many_have_come(form: str) -> None:
    made, shape = built("sm90", form)
    all_of("arrivals", 0, made, shape)


MERGE = ("slot", "slots", "query", "rows", "above", "lse_at", "line", "share")


@pytest.mark.parametrize("sink", [False, True], ids=["plain", "sink"])
@pytest.mark.parametrize("column", MERGE)
@pytest.mark.parametrize("target", FORMS)
def test_a_word_of_a_merge(target: str, column: str, sink: bool) -> None:
    made = artifact_of(f"mla_decode_merge_{target}", {"num_heads": 20, "sink": sink}, {})
    shape = {"partials": (3, 7)} if target == "sm90" else {"partials": (3, 7), "slot_rows": 128}
    all_of("merges", MERGE.index(column), made, shape)


def test_how_many_parts_of_a_query_have_come() -> None:
    """Of sparse decode: no table, but counts."""
    fields = {"num_heads": 8, "rows": "v32"}
    shape = {"batch": 3, "topk": 260, "cache_rows": 400, "splits": 2, "together": 2}
    all_of("arrivals", 0, artifact_of("mla_sparse_decode_sm90", fields, {}), shape)
