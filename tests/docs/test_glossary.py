"""What the glossary names as carrying a term is in the code, and private words are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("mlagen", "schedules", "templates")
CODE = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".j2")
}
# These name the fields of the manifest (docs/glossary.md); others only read them: `map.handoffs`.
PUBLIC = re.compile(r"mlagen/(artifact|inspect)/|/maps?\.py$|/codegen/manifest")


def names_of(page: str) -> list[str]:
    """The words of the last column: `smem.pipeline()` is `pipeline`."""
    rows = [line for line in page.split("\n") if line.startswith("| ") and "---" not in line]
    last = " ".join(row.rstrip(" |").rpartition(" | ")[2] for row in rows)
    return sorted({re.findall(r"\w+", name)[-1 if "." in name.split("(")[0] else 0]
                   for name in re.findall(r"`([A-Za-z@][^`]*)`", last)})  # fmt: skip


def test_what_carries_a_term_is_in_the_code():
    names = names_of((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert {"Pipeline", "exchange", "interleave", "s_waitcnt"} <= {*names}
    everything = "\n".join((*CODE, *CODE.values()))
    assert not [name for name in names if not re.search(rf"\b{name}\b", everything)]


@pytest.mark.parametrize("word", [r"weaves?", r"woven", r"hand-?offs?", r"gatherers?"])
def test_private_words_are_gone(word):
    found = {
        f"{path}: {match.group()}"
        for path, text in CODE.items()
        if not PUBLIC.search(path)
        for match in re.finditer(rf"(?<![.\w]){word}\b", text, re.IGNORECASE)
    }
    assert not found
