"""A target's name stands in its own folders, and in a few tables: everything else asks the
registry's row, so that a new target is a row and folders."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "mlagen"
NAMES = {"gfx950", "sm_90a", "sm_100a"}
OWN = NAMES | {"nvidia", "ptx", "audit_gfx950"}  # folders and files of a target
TABLES = {
    "targets/registry.py": "the rows",
    "families/mla_decode/unit.py": "how many blocks a GPU of each runs, and which kernel combines",
    "ops/kernel_names.py": "which kernels an operator of torch has",
}


def spelled(text: str) -> list[str]:
    """Strings that are a target's name, or a beginning that tells one vendor's from others. What
    makes a name of a driver's numbers, an f-string, is none."""
    tree = ast.parse(text)
    made = {id(x) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for x in n.values}
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in made)
    return [x for x in strings if isinstance(x, str) and (x in NAMES or x in ("sm_", "gfx"))]


def test_few_files_spell_a_targets_name() -> None:
    files = [p for p in ROOT.rglob("*.py") if not OWN & {*p.relative_to(ROOT).parts, p.stem}]
    found = {str(p.relative_to(ROOT)) for p in files if spelled(p.read_text())}
    assert found == TABLES.keys()
    assert len(TABLES) <= 3


def test_the_finder_sees_names_and_beginnings() -> None:
    assert spelled('x == "gfx950"') == ["gfx950"]
    assert spelled('x.startswith("sm_")') == ["sm_"]
    assert not spelled('"""For gfx950."""\nx = f"sm_{major}{minor}a"')
