"""`mlagen list KERNEL --set FIELD=VALUE`: the knobs that a build of that problem takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from mlagen.app.catalogue import summaries
from mlagen.dsl.function import first_sentence


def _knobs(mlagen: Callable[..., Any], *arguments: str) -> dict[str, list[str]]:
    (kernel,) = json.loads(mlagen("list", *arguments, "--json").out)["kernels"]
    return {k["name"]: [x for x in k["choices"] if x not in k["refused"]] for k in kernel["knobs"]}


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("mla_decode_sm90", ["--set", "num_heads=16"]),
        ("mla_decode_sm90", ["--set", "num_heads=16", "--knob", "variant=seesaw"]),
        ("mla_decode_gfx950", ["--set", "num_heads=16", "--set", "cache_dtype=fp8_e4m3"]),
        ("mla_sparse_prefill_sm100", ["--set", "num_heads=128"]),
    ],
)
def test_each_choice_that_is_listed_is_taken(
    mlagen: Callable[..., Any], kernel: str, said: list[str]
) -> None:
    listed = _knobs(mlagen, kernel, *said)
    assert listed
    for name, choices in listed.items():
        for choice in choices:
            if f"{name}=" not in " ".join(said):
                assert _knobs(mlagen, kernel, *said, "--knob", f"{name}={choice}")
        refused = mlagen("list", kernel, *said[:2], "--knob", f"{name}=none of them")
        assert refused.code == 2


def test_the_form_is_named(mlagen: Callable[..., Any]) -> None:
    few = mlagen("list", "mla_decode_sm90", "--set", "num_heads=16").out
    assert "with num_heads=16, in tables/swap_ab.py" in few
    assert re.search(r"boxes +9 \| 3 ", few) and "held" not in few
    assert re.search(r"\n  swap_ab +taken +1 to 32", few)
    assert re.search(r"\n  seesaw +serves +any", few)
    assert re.search(r"\n  swap_ab_kv_fp8 {5,}1 to 32", few)
    usual = mlagen("list", "mla_decode_sm90").out
    assert "in tables/seesaw.py" in usual and usual.endswith("--set FIELD=VALUE.\n")
    chosen = mlagen("list", "mla_decode_sm90", "--knob", "boxes=4").out
    assert re.search(r"boxes +2 \| 1 \| 4 +4 ", chosen)
    assert "any of 0 .. inf" in mlagen("list", "mla_prefill_v2").out
    e4m3 = mlagen("list", "mla_decode_gfx950", "--set", "num_heads=16").out
    assert "arguments=aiter is refused here: " in e4m3
    assert ": none\n" in mlagen("list", "mla_decode_merge_sm90").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mla_decode_sm90", "--set", "num_head=16"], "did you mean num_heads?"),
        (["mla_decode_sm90", "--set", "num_heads=200"], "num_heads=200"),
        (["mla_decode_sm90", "--target", "gfx950"], "is for sm_90a, not for gfx950"),
        (["--set", "num_heads=16"], "mlagen list KERNEL --set FIELD=VALUE"),
        (["mla_decode_sm90", "--built"], "--built lists all artifacts"),
    ],
)
def test_what_is_refused(mlagen: Callable[..., Any], arguments: list[str], told: str) -> None:
    done = mlagen("list", *arguments)
    assert done.code == 2 and told in done.err and done.out == ""


def test_what_it_is_is_a_sentence() -> None:
    assert first_sentence("One of two\nlines. A block has\nmore.\n\nRest.") == "One of two lines"
    assert first_sentence("In form 576 / 512.5, v2. Then") == "In form 576 / 512.5, v2"
    told = {row.name: row.doc for row in summaries()}
    assert told["mla_decode_merge_sm90"] == "Merges the parts of split MLA decode work on Hopper"
    assert told["mla_decode_sm90"] == "MLA decode on Hopper in the absorbed form 576 / 512"
