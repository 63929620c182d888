"""What tests, benchmarks and examples import of mlagen is there. Tests of a GPU are read here, too,
though they run elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from test_circles import ROOT, modules

READ = ("tests", "benchmarks", "examples")
MODULES = modules()


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements bind, in branches and `with` blocks too, but for bodies of functions
    and classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        else:
            yield from (
                name.id
                for name in ast.walk(node)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            )
            for field in ("body", "orelse", "finalbody"):
                yield from bound(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from bound(handler.body)


@cache
def names(module: str) -> frozenset[str] | None:
    """What a module of ours binds; None where its `__getattr__` answers for any name."""
    found = frozenset(bound(ast.parse(MODULES[module].read_text()).body))
    return None if "__getattr__" in found else found


def missing(text: str) -> Iterator[str]:
    """Imports of mlagen in a text that name nothing."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "mlagen":
            continue
        of = node.module or ""
        if of not in MODULES:
            yield f"line {node.lineno}: no module {of}"
            continue
        known = names(of)
        for alias in node.names:
            if (
                known is not None
                and alias.name not in known
                and f"{of}.{alias.name}" not in MODULES
            ):
                yield f"line {node.lineno}: {of} has no {alias.name}"


def test_imported_names_exist() -> None:
    files = sorted(path for folder in READ for path in (ROOT / folder).rglob("*.py"))
    assert len(files) > 100
    wrong = [f"{p.relative_to(ROOT)}, {told}" for p in files for told in missing(p.read_text())]
    assert not wrong, "\n".join(wrong)


def test_a_name_that_moved_away_is_missed() -> None:
    """The very line that a test of the GPU once had, unseen where no GPU is."""
    line = "from mlagen.families.mla_decode.verification import FROM_REGISTERS, order_of"
    assert list(missing(line)) == [
        "line 1: mlagen.families.mla_decode.verification has no FROM_REGISTERS"
    ]
    assert list(missing("from mlagen.nowhere import x")) == ["line 1: no module mlagen.nowhere"]
    assert not list(missing("from mlagen.families.mla_decode import orders, problem"))
