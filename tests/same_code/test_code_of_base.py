"""Samples of the fixed list are what the base commit built, but where wanted.toml says why not."""

from __future__ import annotations

import json

import pytest
from code_differences import Difference, wanted
from code_snapshot import snapshot
from compare_code import HERE, listed
from kept_base import differing, digests, read_base


@pytest.mark.parametrize("form", read_base())
def test_a_form_is_that_of_the_base(form: str) -> None:
    base, now = read_base()[form], digests(json.loads(json.dumps(snapshot(form))))
    if base.get("tools", {}) != now.get("tools", {}):
        pytest.skip(f"the base was made by {base.get('tools')}")
    found = [Difference(form, kind, "") for kind in differing(base, now)]
    left, _ = wanted(HERE / "wanted.toml", found)
    assert not left, f"make same-code BASE=REV shows it: {[one.kind for one in left]}"


def test_forms_of_the_base_stay_listed() -> None:
    assert set(read_base()) <= set(listed()) and len(read_base()) >= 400


@pytest.mark.parametrize("kind", ["code", "proof", "grid", "resources", "args"])
def test_a_difference_is_told(kind: str) -> None:
    row = next(row for row in read_base().values() if "refused" not in row)
    other = {**row, "code": "0"} if kind == "code" else {
        **row, "facts": {**row["facts"], kind: "0"}}  # fmt: skip
    assert differing(row, other) == [kind] and not differing(row, row)
    assert differing(row, {"form": row["form"], "refused": "ConfigError"}) == ["builds"]
