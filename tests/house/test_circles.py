"""No file imports another that leads back to it: lazy and type-only imports count too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def modules() -> dict[str, Path]:
    """Every file of the product by the name that imports it."""
    files = [*(ROOT / "mlagen").rglob("*.py")]
    for folder in ("schedules", "templates"):
        files += (ROOT / folder).rglob("*.py")
    found = {}
    for path in files:
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "mlagen" else ("mlagen", *parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def named(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name in it or nothing) of all imports, anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((name, "") for name in loaded(tree, node.args[0]))


def loaded(tree: ast.AST, name: ast.expr) -> Iterator[str]:
    """What `import_module` may load: a name; an f-string, in whose hole are those strings of the
    file that make a module's name of it, or where none does any; else whatever a string names."""
    texts = {str(x.value) for x in ast.walk(tree) if isinstance(x, ast.Constant)}
    if isinstance(name, ast.Constant):
        yield str(name.value)
    elif isinstance(name, ast.JoinedStr):
        known = modules()
        parts = [str(x.value) if isinstance(x, ast.Constant) else None for x in name.values]
        listed = ["".join(text if x is None else x for x in parts) for text in texts]
        any_name = "".join(".*" if x is None else re.escape(x) for x in parts)
        yield from [x for x in listed if x in known] or filter(
            re.compile(any_name).fullmatch, known
        )
    else:
        yield from texts


def imports(files: Mapping[str, str]) -> dict[str, set[str]]:
    """By module: those it imports. `files`: the text of each module. A name of a package counts as
    the module of that name where there is one, else as the package's own file."""
    graph: dict[str, set[str]] = {}
    for module, text in files.items():
        whole = (
            f"{of}.{name}" if f"{of}.{name}" in files else of for of, name in named(ast.parse(text))
        )
        graph[module] = {other for other in whole if other in files and other != module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one module."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, rest = set(), [start]
        while rest:
            more = graph[rest.pop()] - seen
            seen |= more
            rest += more
        reached[start] = seen
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted(map(set, found), key=sorted)


def test_no_file_imports_itself_by_way_of_others() -> None:
    files = modules()
    graph = imports({name: path.read_text() for name, path in files.items()})
    assert len(graph) > 300 and graph["mlagen.binary"] >= {"mlagen.binary.instruction"}
    assert circles(graph) == []


def test_the_finder_sees_circles_of_every_kind() -> None:
    lazy = "def f():\n    from p.a import X\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import b\n"
    called = "import importlib\nimportlib.import_module('p.c')\n"
    files = {"p": "", "p.a": typed, "p.b": called, "p.c": lazy, "p.d": "import p.a\nimport p.d.e"}
    assert circles(imports(files)) == [{"p.a", "p.b", "p.c"}]
    assert circles(imports({**files, "p.c": ""})) == []
