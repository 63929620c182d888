"""A class's name says what it is of: no two public classes of mlagen share one, but those that are
the same part once in the folder of each target."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from test_circles import ROOT

TARGETS = ("gfx950", "nvidia", "ptx", "sm_90a", "sm_100a")  # folders of these names are of a target

_PART = "a part of the table of latent attention; a target's table asks for the part of its own"
_AUDIT = "the same value of the audits of PTX and of machine code"
_FOLLOW = "what follows the control flow that a target's generator printed"
# Why a name stands once in the folder of each target.
SHARED = {
    "Clash": _AUDIT,
    "Dequantized": f"{_PART}: rows that become bf16 on their way to memory on the chip",
    "Exchange": "a word of the language, `exchange`, with each target's memory on the chip",
    "Finding": _AUDIT,
    "Follower": _FOLLOW,
    "Gathered": f"{_PART}: listed rows as they are stored",
    "Listed": f"{_PART}: rows that a list names",
    "Lost": _FOLLOW,
    "Output": f"{_PART}: where O and its LSE go",
    "Paged": f"{_PART}: rows in the pages of a sequence",
    "Products": f"{_PART}: both products of a tile",
    "Report": _AUDIT,
    "Rows": f"{_PART}: which rows a block attends to",
    "Scales": f"{_PART}: scales of keys",
    "Softmax": f"{_PART}: P of a tile's scores",
    "Storage": f"{_PART}: how rows are stored",
    "WeakWait": _AUDIT,
}


def places(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The files of each public class, by its name; `files`: their text by their path."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, text in files.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def twice(files: Mapping[str, str]) -> dict[str, list[str]]:
    """By name: the files of classes that share it."""
    return {name: paths for name, paths in places(files).items() if len(paths) > 1}


def once_a_target(paths: list[str]) -> bool:
    """Whether each file lies in the folder of a target, and no two in that of the same one."""
    of = [next((part for part in Path(path).parts if part in TARGETS), "") for path in paths]
    return "" not in of and len({*of}) == len(of)


def test_no_two_classes_share_a_name() -> None:
    paths = (ROOT / "mlagen").rglob("*.py")
    found = twice({path.relative_to(ROOT).as_posix(): path.read_text() for path in paths})
    assert {name: where for name, where in found.items() if name not in SHARED} == {}
    assert {name: where for name, where in found.items() if not once_a_target(where)} == {}
    assert {*SHARED} == {*found}  # a name that is no longer shared leaves the table


def test_it_would_be_seen() -> None:
    one, other = "class Ring: ...\n", "def f():\n    class Ring: ...\n\nclass _Own: ...\n"
    assert twice({"a.py": one, "b.py": other, "c.py": other}) == {}
    found = twice({"a/gfx950/x.py": one, "b/nvidia/y.py": one, "c.py": "class Tile: ..."})
    assert found == {"Ring": ["a/gfx950/x.py", "b/nvidia/y.py"]}
    assert once_a_target(found["Ring"])
    assert not once_a_target([*found["Ring"], "c.py"])
    assert not once_a_target([*found["Ring"], "d/gfx950/dsl/z.py"])
