"""Tools name no family: not in code, comments or docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "mlagen" / "families"
# Where families are at home, and the public names that users know them by.
THEIR_OWN = ("mlagen/families", "mlagen/compat", "mlagen/ops")


def names() -> set[str]:
    """Of the families' folders, the shipped schedules and the families' problem classes."""
    found = {path.name for path in FAMILIES.iterdir() if (path / "__init__.py").is_file()}
    found |= {path.stem for path in (ROOT / "schedules").glob("*.py")} - {"__init__"}
    for path in FAMILIES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(map(_says_family, node.body)):
                found.add(node.name)
    return found


def _says_family(statement: ast.stmt) -> bool:
    """`family: ClassVar[str] = ...` of a problem class, `problem_type = ...` of a config."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "problem_type"
    return isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "family"


def naming() -> dict[str, list[str]]:
    """Lines that hold a family's name, by file."""
    wanted = re.compile("|".join(sorted(names(), key=len, reverse=True)))
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "mlagen").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in (".py", ".j2") or name.startswith(THEIR_OWN):
            continue
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if wanted.search(line):
                found.setdefault(name, []).append(f"{name}:{number}: {line.strip()}")
    return found


def test_names_are_gathered_from_the_folders() -> None:
    assert {"mha_prefill", "split_merge", "mla_decode_sm90", "MhaProblem", "MhaConfigV2"} <= names()
    assert len(names()) >= 4 + 5 + 5


def test_no_tool_names_a_family() -> None:
    assert [line for lines in naming().values() for line in lines] == []
