"""Operation statements of a schedule, and the schedule with one of them changed.

A schedule is run with a recorder, which knows of each operation that is recorded the statements of
schedule files that were being executed. An edit changes one of these statements in the syntax tree
of its file; the function that it stands in runs the code of that tree until the edit is taken back.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any
from unittest.mock import patch

from mlagen.dsl import ScheduleFunction
from mlagen.dsl.builder import Builder
from mlagen.targets.gfx950.dsl.builder import ClusterBuilder
from mlagen.targets.nvidia.dsl.pipeline import PipelineBuilder


@dataclass(frozen=True, order=True)
class Place:
    """A statement: its file, the function of that file that it stands in, and its first line."""

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Edit:
    """A changed statement. `kind`: drop, swap or shift; `text`: what it did; `code`: of the
    function with it."""

    kind: str
    place: Place
    text: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.kind} {self.place} {self.text}"


def places(run: Callable[[], Any], tables: frozenset[str]) -> list[Place]:
    """The statements of the files `tables` that record operations while `run` is called: each
    statement that is being executed then, but for those of a class, which says what an operation
    is."""
    found: set[Place] = set()

    def note(self: Builder) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if file in tables and (place := _place(file, frame.f_lineno)):
                found.add(place)
            frame = frame.f_back

    with ExitStack() as stack:
        for kind in (ClusterBuilder, PipelineBuilder):
            stack.enter_context(patch.object(kind, "add", _noted(kind.add, note)))
        run()
    return sorted(found)


def _noted(add: Any, note: Callable[[Any], None]) -> Any:
    def noting(self: Any, step: Any) -> None:
        note(self)
        add(self, step)

    return noting


_trees: dict[str, ast.Module] = {}


def _tree(file: str) -> ast.Module:
    if file not in _trees:
        _trees[file] = ast.parse(Path(file).read_text())
    return _trees[file]


def _place(file: str, line: int) -> Place | None:
    """The innermost statement at a line, inside of a function of the file."""
    for top in _tree(file).body:
        if isinstance(top, ast.FunctionDef) and top.lineno <= line <= _end(top):
            inside = (x for x in ast.walk(top) if isinstance(x, ast.stmt))
            held = [x for x in inside if x.lineno <= line <= _end(x)]
            return Place(file, top.name, max(held, key=lambda x: (x.lineno, -_end(x))).lineno)
    return None


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


# ---- edits ---------------------------------------------------------------------------------------

Change = Callable[[list[ast.stmt], int], None]  # of a block's statements, at a place of it


def drops(place: Place) -> Iterator[Edit]:
    """The statement left out, and, of one that interleaves, each of what it interleaves."""

    def leave_out(block: list[ast.stmt], at: int) -> None:
        block[at] = ast.Pass()

    yield _edit("drop", place, leave_out)
    call = _call(place)
    if isinstance(call.func, ast.Name) and call.func.id == "interleave":
        for index, argument in enumerate(call.args):

            def without(block: list[ast.stmt], at: int, index: int = index) -> None:
                held = block[at].value  # type: ignore[attr-defined]
                del held.args[index]
                if len(held.args) == 1:
                    block[at] = ast.Expr(held.args[0])

            yield _edit("drop", place, without, f"{ast.unparse(argument)} of its interleave")


def swaps(place: Place) -> Iterator[Edit]:
    """The statement and the one that follows it, the other way round."""
    block, at = _find(_tree(place.file), place)
    if all(isinstance(x, ast.Expr) for x in block[at : at + 2]) and at + 1 < len(block):

        def exchange(block: list[ast.stmt], at: int) -> None:
            block[at], block[at + 1] = block[at + 1], block[at]

        yield _edit("swap", place, exchange, ast.unparse(block[at + 1]))


def shifts(place: Place) -> Iterator[Edit]:
    """Each tile that the statement names, one further and one less far."""
    block, at = _find(_tree(place.file), place)
    for number, node in enumerate(ast.walk(block[at])):
        if isinstance(block[at], ast.Expr) and isinstance(node, ast.Name) and node.id == "i":
            for by in (1, -1):

                def shift(
                    block: list[ast.stmt], at: int, number: int = number, by: int = by
                ) -> None:
                    wanted = list(ast.walk(block[at]))[number]
                    block[at] = _Shifted(wanted, by).visit(block[at])

                yield _edit("shift", place, shift, f"i{by:+}")


class _Shifted(ast.NodeTransformer):
    def __init__(self, node: ast.AST, by: int) -> None:
        self.node, self.by = node, by

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node is not self.node:
            return node
        return ast.BinOp(node, ast.Add(), ast.Constant(self.by))


def _call(place: Place) -> ast.Call:
    block, at = _find(_tree(place.file), place)
    value = getattr(block[at], "value", None)
    return value if isinstance(value, ast.Call) else ast.Call(ast.Constant(None), [], [])


def _find(tree: ast.Module, place: Place) -> tuple[list[ast.stmt], int]:
    """The block that a place's statement stands in, and where in it."""
    for node in ast.walk(_function(tree, place)):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            for at, statement in enumerate(block if isinstance(block, list) else []):
                if statement.lineno == place.line:
                    return block, at  # type: ignore[return-value]
    raise LookupError(str(place))


def _function(tree: ast.Module, place: Place) -> ast.FunctionDef:
    named = (x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == place.function)
    return next(named)


def _edit(kind: str, place: Place, change: Change, text: str = "") -> Edit:
    tree = copy.deepcopy(_tree(place.file))
    block, at = _find(tree, place)
    told = ast.unparse(block[at])
    change(block, at)
    module = compile(ast.fix_missing_locations(tree), place.file, "exec")
    codes = (x for x in module.co_consts if isinstance(x, CodeType))
    code = next(x for x in codes if x.co_name == place.function)
    return Edit(kind, place, f"`{told}`{text and ': ' + text}", code)


@contextmanager
def applied(edit: Edit) -> Iterator[None]:
    """The function that the edit is in runs its code."""
    modules = [
        m for m in list(sys.modules.values()) if getattr(m, "__file__", "") == edit.place.file
    ]
    functions: list[FunctionType] = []
    for module in modules:
        held = vars(module)[edit.place.function]
        functions.append(held.function if isinstance(held, ScheduleFunction) else held)
    before = [function.__code__ for function in functions]
    for function in functions:
        function.__code__ = edit.code
    try:
        yield
    finally:
        for function, code in zip(functions, before, strict=True):
            function.__code__ = code
