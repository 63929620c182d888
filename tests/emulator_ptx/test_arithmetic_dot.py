"""The tensor core's sums against words that an H200 gave."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hopper_arithmetic.inputs import FAMILIES, INPUT_SETS, InputSet
from kept_words import arrays, names

from mlagen.emulator.ptx.arithmetic.dot import SummingRule, dot, dot_integer, rule_of
from mlagen.errors import ConfigError

SETS = {kinds.name: kinds for kinds in INPUT_SETS}
CASES = [name.split("/") for name in names("tensor")]
DIGESTS = [name.split("/") for name in names("digests")]
BLOCK = 128  # tiles of one digest


def modelled(kinds: InputSet, kind: str, tiles: Any, rule: SummingRule | None = None) -> Any:
    """What an instruction should give. `kind`: as in benchmarks/hopper_words.py."""
    a, b, c = tiles
    k = kinds.k // 2 if kind == "half" else kinds.k
    a, b = a[..., :k], b[..., :k]
    if kinds.integer:
        return dot_integer((kinds.a, kinds.b), a, b, c, saturate=kind == "saturated")
    instruction = "mma" if kind in ("mma", "half") else "wgmma"
    rule = rule or rule_of(instruction, kinds.a, kinds.c)
    return dot(rule, (kinds.a, kinds.b, kinds.c), a, b, None if kind == "no c" else c)


def kept_inputs(kinds: InputSet, words: Any) -> tuple[Any, Any, Any]:
    a, b, c = kinds.tiles(0, len(words))
    rows = words.shape[1]
    return a[:, :rows], b, c[:, :rows]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_kept_words(name: str, kind: str) -> None:
    words = arrays()[f"tensor/{name}/{kind}"]
    found = modelled(SETS[name], kind, kept_inputs(SETS[name], words))
    assert (found == words).all()


@pytest.mark.parametrize(("name", "kind"), DIGESTS)
def test_digests_of_65536_sums(name: str, kind: str) -> None:
    kinds = SETS[name]
    wanted = arrays()[f"digests/{name}/{kind}"]
    place = len(wanted) // 2
    found = modelled(kinds, kind, kinds.tiles(place * BLOCK, BLOCK)).astype(f"<u{kinds.c_bytes}")
    assert int(hashlib.sha256(found.tobytes()).hexdigest()[:16], 16) == int(wanted[place])


def other_rules() -> list[tuple[str, SummingRule]]:
    """Rules a step away from the right one, which the kept words must tell from it."""
    found = []
    for name, kinds in SETS.items():
        if kinds.integer:
            continue
        right = rule_of("wgmma", kinds.a, kinds.c)
        steps = {"window": (1, -1), "kept": () if kinds.c == "f16" else (-1,)}
        if kinds.c == "f32" and right.kept < 23:
            steps["kept"] = (1, -1)
        found += [
            (name, replace(right, **{part: getattr(right, part) + step}))
            for part, several in steps.items()
            for step in several
        ]
        if kinds.a not in ("tf32", "bf16"):  # f16 holds the values of the others
            found.append((name, replace(right, interleaved=True)))
    return found


@pytest.mark.parametrize(("name", "rule"), other_rules())
def test_the_words_tell_other_rules(name: str, rule: SummingRule) -> None:
    kinds = SETS[name]
    words = arrays()[f"tensor/{name}/shared"]
    found = modelled(kinds, "shared", kept_inputs(kinds, words), rule)
    assert (found != words).any()


def test_every_family_is_kept() -> None:
    words = arrays()["tensor/f32.bf16.bf16/shared"]
    assert len(words) == len(FAMILIES)
    assert len(np.unique(words)) > words.size // 2


def test_all_sums_of_a_chip_are_counted() -> None:
    assert sum(len(arrays()[f"digests/{a}/{b}"]) for a, b in DIGESTS) * BLOCK * 512 > 130_000_000


def test_no_rule_for_other_accumulators() -> None:
    with pytest.raises(ConfigError, match="s32"):
        rule_of("wgmma", "bf16", "s32")
