"""Every name that a template takes has its meaning in docs/template_names.md, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from jinja2 import meta, nodes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/template_names.md"
ALL, NVIDIA = "All templates", "`sm_90a` and `sm_100a`"
MOST_WORDS = 15
Names = dict[str, dict[str, str]]


def read_page(text: str) -> Names:
    """Meanings by name, by the heading of their table. ValueError: a name stands twice in one."""
    found: Names = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"##+ (.*)", line):
            names = found.setdefault(heading[1], {})
        elif row := re.fullmatch(r"\| `(\w+)` \| (.*) \|", line):
            if row[1] in names:
                raise ValueError(f"{row[1]} stands twice")
            names[row[1]] = row[2]
    return found


def taken(text: str) -> set[str]:
    """Names that a template takes, and does not set itself."""
    tree = jinja2.Environment().parse(text)
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    for one in tree.find_all(nodes.FromImport):
        own |= {name if isinstance(name, str) else name[1] for name in one.names}
    return meta.find_undeclared_variables(tree) - own


def headings(path: Path) -> Iterator[str]:
    """Where names of a template, by its path below `templates`, are looked up, in turn."""
    folders = path.parts[:-1]
    for count in range(len(folders), 0, -1):
        yield f"`{'/'.join(folders[:count])}`"
    if folders[0] in ("sm_90a", "sm_100a"):
        yield NVIDIA
    yield ALL


def looked_up(names: Names, templates: dict[Path, str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Names without a meaning, with their template; and the entries that some template needs."""
    missing, used = set(), set()
    for path, text in templates.items():
        for name in taken(text):
            places = (place for place in headings(path) if name in names.get(place, {}))
            place = next(places, None)
            if place is None:
                missing.add(f"{path}: {name}")
            else:
                used.add((place, name))
    return missing, used


def entries(names: Names) -> set[tuple[str, str]]:
    return {(place, name) for place, known in names.items() for name in known}


@pytest.fixture(scope="module")
def names() -> Names:
    return read_page(PAGE.read_text())


@pytest.fixture(scope="module")
def templates() -> dict[Path, str]:
    folder = ROOT / "templates"
    return {path.relative_to(folder): path.read_text() for path in sorted(folder.rglob("*.j2"))}


def test_each_name_has_a_meaning_and_each_meaning_a_name(
    names: Names, templates: dict[Path, str]
) -> None:
    missing, used = looked_up(names, templates)
    assert len(templates) > 300 and missing == set()
    assert entries(names) - used == set()


def test_meanings_are_short_sentences(names: Names) -> None:
    wrong = [
        (place, name)
        for place, known in names.items()
        for name, meaning in known.items()
        if len(meaning.split()) > MOST_WORDS or not meaning[0].isalpha() or meaning[-1] != "."
    ]
    assert wrong == []


def test_one_meaning_of_a_name_stands_once(names: Names) -> None:
    """In the table of a folder above those that have it, or of several targets."""
    places: dict[tuple[str, str], list[str]] = {}
    for place, known in names.items():
        for name, meaning in known.items():
            places.setdefault((name, meaning), []).append(place)
    assert {one: where for one, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    "text, found",
    [
        ("{{ kept }}{{ new }}", ({"gfx950/a/b.s.j2: new"}, {("`gfx950/a`", "kept")})),
        ("{% set new = 1 %}{{ new }}", (set(), set())),
        ("{{ above }}", (set(), {("`gfx950`", "above")})),
        ("{{ old }}", (set(), {(ALL, "old")})),
        ("{{ hopper }}", ({"gfx950/a/b.s.j2: hopper"}, set())),
    ],
)
def test_what_is_missing_or_unused_is_found(text: str, found: object) -> None:
    names = read_page(
        f"## {ALL}\n| `old` | Old. |\n| `kept` | All. |\n## {NVIDIA}\n| `hopper` | H. |\n"
        "## `gfx950`\n| `above` | A. |\n### `gfx950/a`\n| `kept` | Kept. |\n"
    )
    assert looked_up(names, {Path("gfx950/a/b.s.j2"): text}) == found


def test_a_name_stands_once_in_a_table() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        read_page("## `gfx950`\n| `a` | One. |\n| `a` | Another. |\n")
