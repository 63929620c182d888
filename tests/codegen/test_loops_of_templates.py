"""In templates `loop` is the innermost loop: who counts with it in a loop of numbers meant another.

In `for i in range(4)` the numbers i and `loop.index0` are the same, and nobody writes the longer
one for i. It is what a loop around this one has counted, or was meant to.
"""

from __future__ import annotations

from collections.abc import Iterator

import jinja2
from jinja2 import nodes
from sources import ROOT

COUNTERS = ("index", "index0")
MISTAKEN = """{% for step in some %}
{% for i in range(4) %}
mov.b32 %word{{ 4 * loop.index0 + i }}, 0;
{% endfor %}
{% endfor %}"""
MEANT = """{% for step in some %}
{% set n = 4 * loop.index0 %}
{% for i in range(n, n + loop.index0) %}
mov.b32 %word{{ n + i }}, 0;
{% endfor %}
{% endfor %}"""


def counts(node: nodes.Node) -> Iterator[int]:
    """Lines below `node` that count with the loop around it: those of loops in it are not, but
    what such a loop goes over is."""
    of = node.node if isinstance(node, nodes.Getattr) and node.attr in COUNTERS else None
    if isinstance(of, nodes.Name) and of.name == "loop":
        yield node.lineno
    within = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    for child in within:
        yield from counts(child)


def mistaken(text: str) -> list[int]:
    """Lines in a loop over `range(n)` that count with `loop`."""
    return [
        line
        for loop in jinja2.Environment().parse(text).find_all(nodes.For)
        if isinstance(loop.iter, nodes.Call) and len(loop.iter.args) == 1
        and isinstance(loop.iter.node, nodes.Name) and loop.iter.node.name == "range"
        for statement in loop.body
        for line in counts(statement)
    ]  # fmt: skip


def test_one_is_found() -> None:
    assert mistaken(MISTAKEN) == [3]
    assert mistaken(MEANT) == []


def test_no_template_has_one() -> None:
    templates = sorted((ROOT / "templates").rglob("*.j2"))
    assert templates
    found = {path.relative_to(ROOT): mistaken(path.read_text()) for path in templates}
    assert {path: lines for path, lines in found.items() if lines} == {}
