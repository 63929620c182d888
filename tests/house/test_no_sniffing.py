"""What a kernel is its variant or its operations say, in the manifest: planners, verifiers and
operators do not guess it from names of arguments, of sizes, of knobs or of targets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "mlagen"
FOLDERS = ("families", "attention", "family", "ops", "compat", "verify", "tune", "bench")
TARGETS = {"gfx950", "sm_90a", "sm_100a"}
# Collections of a manifest whose members have names; what holds their names is one as well.
NAMED = {"args", "grid"}
KNOBS = ("knobs", "manifest")  # a reader of these guesses, however it goes on
# Where a target's name is compared, and not to tell what a kernel is.
LISTED = {
    ("ops/gpu_kernel.py", "target in each"): "which operators serve a GPU",
    ("ops/gpu_kernel.py", "target not in kernels"): "whether one serves it",
    ("family/base.py", "target in MODELLED"): "whether the cycle model knows the target",
    ("tune/judge.py", "schedule.target in MODELLED"): "whether the cycle model knows the target",
    ("tune/judge.py", "target not in MODELLED"): "the same",
    ("tune/judge.py", "info.target in MODELLED"): "the same",
    ("tune/measured.py", "name == target"): "which GPU a measurement is of",
    ("tune/lookup.py", "artifact.manifest.knobs"): "users are told which knobs were taken",
    ("tune/measured.py", "reference.manifest.knobs"): "whether it is the one asked for",
    ("verify/run.py", "manifest.target not in EMULATED"): "whether an emulator executes it",
}


def sniffed(text: str) -> Iterator[str]:
    """The comparisons of a file that guess what a kernel is, as text."""
    tree = ast.parse(text)
    held = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _over_named(node.value)
        for target in node.targets
    }
    inside = {id(part) for node in ast.walk(tree) if _over_named(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            constant = any(_strings(side) for side in sides)
            of_target = any(_strings(side) & TARGETS or _last(side) == "target" for side in sides)
            named = constant and (
                id(node) in inside or any(ast.unparse(side) in held for side in sides)
            )
            if of_target or named:
                yield ast.unparse(node).replace("'", '"')
        elif isinstance(node, ast.Attribute) and (node.attr, _last(node.value)) == KNOBS:
            yield ast.unparse(node)


def _over_named(node: ast.AST) -> bool:
    """Whether it is a comprehension over arguments or sizes of a manifest, or a call of one."""
    if isinstance(node, ast.Call):
        return any(map(_over_named, node.args))
    generators = getattr(node, "generators", ())
    return any(_last(one.iter) in NAMED for one in generators)


def _strings(node: ast.AST) -> set[str]:
    """String constants of a side."""
    members = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {one.value for one in members
            if isinstance(one, ast.Constant) and isinstance(one.value, str)}  # fmt: skip


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def found() -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(ROOT)), guess)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for guess in sniffed(path.read_text())
    ]


def test_no_file_guesses_what_a_kernel_is() -> None:
    assert [one for one in found() if one not in LISTED] == []


def test_the_list_has_no_more_than_there_is() -> None:
    assert set(LISTED) <= set(found())


@pytest.mark.parametrize(
    "text",
    [
        'any(arg.name == "work_indptr" for arg in artifact.manifest.args)',
        'next(a for a in manifest.args if a.name in ("shares", "arrivals"))',
        'named = {arg.name for arg in manifest.args}\nif "zeros" in named: pass',
        'self._taken = tuple(a.name for a in self.args)\nx = "bulk" not in self._taken',
        'self._grid = tuple(each.size for each in manifest.grid)\nif "blocks" in self._grid: pass',
        'if manifest.target == "sm_100a": pass',
        "if unit.target in TARGETS: pass",
        'few = "sm_90a" != where',
        'artifact.manifest.knobs["persistent"]',
        'self.manifest.knobs.get("swap_ab", 0)',
        "config = of(manifest.problem, manifest.knobs)",
    ],
)
def test_a_guess_is_found(text: str) -> None:
    assert list(sniffed(text))


@pytest.mark.parametrize(
    "text",
    [
        "{arg.name: numbers[arg.name] for arg in manifest.args if not arg.tensor}",
        "{a.name: sizes[a.name] for a in manifest.args if a.name in sizes}",
        "merges = MERGE_KERNELS[manifest.target]",
        'if facts.items == "several": pass',
        "config = of(manifest.problem, facts_of(artifact))",
    ],
)
def test_what_only_binds_is_none(text: str) -> None:
    assert not list(sniffed(text))
