"""Templates that lie by part begin with a line that names what they take from operations."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import jinja2
import pytest
from jinja2 import meta

ROOT = Path(__file__).resolve().parents[2] / "templates"
# Folders of parts, by target.
PARTS = {
    "sm_90a": (
        "swap_ab",
        "output",
        "pipeline",
        "split_merge",
        "grained",
        "latent",
        "mla_decode",
        "mla_sparse",
    ),
    "sm_100a": ("rows", "storage", "queries", "products", "softmax", "output", "pipeline"),
    "gfx950": (
        *(f"latent/{part}" for part in ("rows", "storage", "products", "softmax", "output")),
        *("prefill", "mha_prefill", "mla_decode_merge", "split_merge", "shared"),
    ),
}
NEEDS = re.compile(r"\{# needs: ([^#]*) #\}\n")


def needs_line(text: str) -> str:
    """The line that a template of this text begins with."""
    names = sorted(meta.find_undeclared_variables(jinja2.Environment().parse(text)))
    line = "{# needs: " + (", ".join(names) or "nothing") + " #}"
    return textwrap.fill(line, 120, subsequent_indent="   ", break_on_hyphens=False)


def templates() -> list[Path]:
    return [
        path
        for target, parts in PARTS.items()
        for part in parts
        for path in sorted((ROOT / target / part).rglob("*.j2"))
    ]


@pytest.mark.parametrize("path", templates(), ids=lambda path: str(path.relative_to(ROOT)))
def test_its_first_line_names_what_it_needs(path: Path) -> None:
    text = path.read_text()
    first = NEEDS.match(text)
    assert first is not None, f"the first line of {path.relative_to(ROOT)}: {needs_line(text)}"
    assert first[0] == needs_line(text) + "\n"


def test_each_part_has_templates() -> None:
    for target, parts in PARTS.items():
        assert all(any((ROOT / target / part).rglob("*.j2")) for part in parts)


def test_what_says_nothing_is_on_the_list() -> None:
    paths = [path.relative_to(ROOT) for path in ROOT.rglob("*/*/**/*.j2")]
    silent = {
        f"{p.parts[0]}/{p.parts[1]}" for p in paths if not NEEDS.match((ROOT / p).read_text())
    }
    assert len(paths) > 200 and not set(silent)


def test_what_is_declared_inside_is_no_need() -> None:
    text = '{% from "a" import b %}{% set c = d %}{% for e in f %}{{ b(c, e) }}{% endfor %}'
    assert needs_line(text) == "{# needs: d, f #}"
    assert needs_line("ret;") == "{# needs: nothing #}"
    assert needs_line("{% macro m(x) %}{{ x }}{{ y }}{% endmacro %}") == "{# needs: y #}"
