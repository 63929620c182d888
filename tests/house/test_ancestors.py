"""A class of operations has at most one ancestor of ours: what it does is found where it says."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from test_circles import ROOT


def classes(files: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """By full name: the bases of each class of some modules, by full name where they are one of
    those. `files`: the text of each module."""
    found: dict[str, tuple[str, ...]] = {}
    for module, text in files.items():
        tree = ast.parse(text)
        known = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
        }  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = (ast.unparse(base).partition("[")[0] for base in node.bases)
                own = f"{module}.{node.name}"
                found[own] = tuple(known.get(base, f"{module}.{base}") for base in bases)
    return found


def ancestors(name: str, bases: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Those of a class, directly or not, that are in the mapping."""
    own = [base for base in bases[name] if base in bases]
    return set(own).union(*(ancestors(base, bases) for base in own))


def operations() -> dict[str, str]:
    """Modules of operations: those of attention and of families in a target's folder."""
    targets = {path.name for path in (ROOT / "mlagen" / "targets").iterdir() if path.is_dir()}
    found = {}
    for folder in ("attention", "families"):
        for path in (ROOT / "mlagen" / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if targets & set(parts):
                found[".".join(parts)] = path.read_text()
    return found


def test_a_class_of_operations_has_one_ancestor_at_most() -> None:
    bases = classes(operations())
    many = {name.removeprefix("mlagen.") for name in bases if len(ancestors(name, bases)) > 1}
    assert len(bases) > 50 and not many


def test_ancestors_are_counted_over_files() -> None:
    files = {
        "a": "class A: ...\nclass P(Protocol): ...",
        "b": "from a import A as Z\nclass B(Z): ...\nclass G(Generic[T]): ...",
        "c": "from b import B, G\nclass C(B): ...\nclass D(C, G[int]): ...",
    }
    bases = classes(files)
    counted = {name: len(ancestors(name, bases)) for name in bases}
    assert counted == {"a.A": 0, "a.P": 0, "b.B": 1, "b.G": 0, "c.C": 2, "c.D": 4}
