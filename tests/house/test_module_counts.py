"""A module's name says what it is about: no name stands more than three times in mlagen, but those
of a part that every family, or every target, has in its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from test_circles import ROOT
from test_class_names import TARGETS

MOST = 3

_LATENT = "a part of each table of latent attention, in the table's folder"
_TARGET = "what tools, or the other rooms of a generator, ask each target's folder for"
# What each family has in its folder, and folders of attention for several families: why.
FAMILIES = {
    "exact": "the oracle in fp64",
    "expected": "what a call should give",
    "facts": "what hosts and planners know of a kernel; its manifest carries it",
    "form": "what the host passes to a target's kernel, and which problems there is one for",
    "inputs": "checked tensors of a call",
    "kernel": "the callable, and what a target's operations are recorded on",
    "made_up": "data that tools make",
    "problem": "the problem class",
    "products": _LATENT,
    "queries": _LATENT,
    "rounded": "the oracle that rounds as kernels do",
    "verification": "what `mlagen verify` asks a family for",
    "workload": "what `mlagen bench` and `mlagen tune` ask a family for",
}
# What each target has once in its folder of a part of mlagen: why.
OF_TARGETS = {"build": _TARGET, "limits": _TARGET, "target": _TARGET}


def counted(paths: Iterable[str]) -> dict[str, list[str]]:
    """By name: the modules, below mlagen/, that nothing excuses from being counted."""
    found: dict[str, list[str]] = defaultdict(list)
    seen: set[tuple[str, str, str]] = set()
    for path in sorted(paths):
        room, *_ = parts = Path(path).parts
        name = Path(path).stem
        if name == "__init__" or (name in FAMILIES and room in ("families", "attention")):
            continue
        target = next((part for part in parts if part in TARGETS), "")
        if name in OF_TARGETS and target and (name, room, target) not in seen:
            seen.add((name, room, target))
            continue
        found[name].append(path)
    return found


def too_often(paths: Iterable[str]) -> dict[str, list[str]]:
    """The names that stand more than three times."""
    return {name: where for name, where in counted(paths).items() if len(where) > MOST}


def modules() -> list[str]:
    """Paths below mlagen/."""
    return [p.relative_to(ROOT / "mlagen").as_posix() for p in (ROOT / "mlagen").rglob("*.py")]


def test_no_name_stands_more_than_three_times() -> None:
    assert too_often(modules()) == {}


def test_each_exception_is_needed() -> None:
    names = [Path(path).stem for path in modules()]
    assert [x for x in (*FAMILIES, *OF_TARGETS) if names.count(x) <= MOST] == []


def test_it_would_be_seen() -> None:
    four = [f"{folder}/layout.py" for folder in ("binary", "dsl", "timing", "tune")]
    assert too_often([*four[1:], "a/__init__.py"]) == {}
    assert too_often(four) == {"layout": four}
    families = [f"families/{name}/exact.py" for name in "abcd"]
    assert too_often(families) == {}
    others = [f"{folder}/exact.py" for folder in ("binary", "dsl", "timing", "tune")]
    assert too_often([*families, *others]) == {"exact": others}
    targets = [f"targets/{target}/codegen/build.py" for target in TARGETS]
    assert too_often(targets) == {}
    twice = [path.replace("codegen", "dsl") for path in targets]
    assert [*too_often([*targets, *twice])] == ["build"]
