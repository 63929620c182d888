"""Operation statements of a schedule, and the schedule without one of them.

A schedule is run with a recorder, which knows of each operation that is recorded the statements of
schedule files that were being executed. An edit changes one of these statements in the syntax tree
of its file; the function that it stands in runs the code of that tree until the edit is taken back.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any
from unittest.mock import patch

from mlagen.dsl import ScheduleFunction
from mlagen.dsl.builder import Builder
from mlagen.targets.gfx950.dsl.builder import ClusterBuilder
from mlagen.targets.nvidia.dsl.pipeline import PipelineBuilder

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, order=True)
class Place:
    """A statement: the file and the function that it stands in, and its first line."""

    file: str
    function: str
    first: int  # line of the function
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Edit:
    """A changed statement. `kind`: drop, swap or shift; `text`: what it did; `path`: of names and
    numbers from the statement to what changes, "" where all of it goes."""

    kind: str
    place: Place
    text: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.kind} {self.place} {self.text}"


def recorded(run: Any, tables: frozenset[str]) -> tuple[Any, dict[Place, int], dict[Place, Any]]:
    """What `run()` returns, how many operations each statement of the files `tables` recorded, and
    the function of each."""
    counts: dict[Place, int] = {}
    functions: dict[Place, Any] = {}

    def note(frame: FrameType | None) -> None:
        while frame is not None:
            code = frame.f_code
            if code.co_filename in tables and not _is_method(code):
                statement = _statement(code, frame.f_lineno)
                place = Place(code.co_filename, code.co_name, code.co_firstlineno, statement)
                counts[place] = counts.get(place, 0) + 1
                functions[place] = code
            frame = frame.f_back

    with patched(lambda builder, step, add: (note(sys._getframe()), add(builder, step))):
        made = run()
    return made, counts, functions


@contextmanager
def patched(instead: Any) -> Iterator[None]:
    """Builders call `instead(builder, step, add)` where they add a step."""

    def replaced(kind: type[Builder]) -> Any:
        add = kind.add
        return patch.object(kind, "add", lambda self, step: instead(self, step, add) and None)

    with replaced(ClusterBuilder), replaced(PipelineBuilder):
        yield


def _is_method(code: CodeType) -> bool:
    head = code.co_qualname.rpartition(".")[0]
    return bool(head) and not head.endswith("<locals>")


_trees: dict[str, ast.Module] = {}


def _tree(file: str) -> ast.Module:
    if file not in _trees:
        _trees[file] = ast.parse(Path(file).read_text())
    return _trees[file]


def _function(tree: ast.Module, code: CodeType) -> ast.FunctionDef:
    return next(
        x for x in ast.walk(tree)
        if isinstance(x, ast.FunctionDef) and x.name == code.co_name
        and code.co_firstlineno in range(min([d.lineno for d in x.decorator_list] + [x.lineno]),
                                         x.lineno + 1)
    )  # fmt: skip


def _statement(code: CodeType, line: int) -> int:
    """The first line of the innermost statement at a line."""
    held = [
        x for x in ast.walk(_function(_tree(code.co_filename), code))
        if isinstance(x, ast.stmt) and x.lineno <= line <= (x.end_lineno or x.lineno)
    ]  # fmt: skip
    return max(held, key=lambda x: (x.lineno, -(x.end_lineno or 0))).lineno


# ---- edits ---------------------------------------------------------------------------------------


def drops(place: Place, code: CodeType) -> list[Edit]:
    """The statement left out, and, of one that interleaves, each of what it interleaves."""
    made = [_edit("drop", place, code, lambda body, at: body.__setitem__(at, ast.Pass()))]
    stmt = _at(_function(_tree(place.file), code), place.line)[2]
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "interleave":
        for index, argument in enumerate(call.args):

            def without(body: list[ast.stmt], at: int, index: int = index) -> None:
                held = body[at].value  # type: ignore[attr-defined]
                del held.args[index]
                if len(held.args) == 1:
                    body[at] = ast.Expr(held.args[0])

            made.append(
                _edit("drop", place, code, without, f"{ast.unparse(argument)} of its interleave")
            )
    return made


def swaps(place: Place, code: CodeType) -> list[Edit]:
    """The statement and the one that follows it, the other way round; interleaved ones likewise."""
    body, at, stmt = _at(_function(_tree(place.file), code), place.line)
    made = []
    if at + 1 < len(body) and isinstance(stmt, ast.Expr) and isinstance(body[at + 1], ast.Expr):

        def exchange(body: list[ast.stmt], at: int) -> None:
            body[at], body[at + 1] = body[at + 1], body[at]

        made.append(_edit("swap", place, code, exchange, ast.unparse(body[at + 1])))
    return made


def shifts(place: Place, code: CodeType) -> list[Edit]:
    """Each tile that the statement names, one further and one less far."""
    stmt = _at(_function(_tree(place.file), code), place.line)[2]
    made = []
    if not isinstance(stmt, ast.Expr):
        return []
    for number, node in enumerate(ast.walk(stmt)):
        if isinstance(node, ast.Name) and node.id == "i":
            for by in (1, -1):

                def shift(
                    body: list[ast.stmt], at: int, number: int = number, by: int = by
                ) -> None:
                    wanted = list(ast.walk(body[at]))[number]
                    body[at] = _Shifted(wanted, by).visit(body[at])

                made.append(_edit("shift", place, code, shift, f"i{by:+}"))
    return made


class _Shifted(ast.NodeTransformer):
    def __init__(self, node: ast.AST, by: int) -> None:
        self.node, self.by = node, by

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node is not self.node:
            return node
        return ast.BinOp(node, ast.Add(), ast.Constant(self.by))


def _at(function: ast.FunctionDef, line: int) -> tuple[list[ast.stmt], int, ast.stmt]:
    """The list that the statement of a line stands in, its place there, and itself."""
    for node in ast.walk(function):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            for at, stmt in enumerate(body if isinstance(body, list) else []):
                if stmt.lineno == line and not isinstance(stmt, ast.FunctionDef):
                    return body, at, stmt
    raise LookupError(line)


def _edit(kind: str, place: Place, code: CodeType, change: Any, text: str = "") -> Edit:
    tree = copy.deepcopy(_tree(place.file))
    body, at, stmt = _at(_function(tree, code), place.line)
    told = ast.unparse(stmt)
    change(body, at)
    module = compile(ast.fix_missing_locations(tree), place.file, "exec")
    return Edit(kind, place, f"{told}{text and ': ' + text}", _found(module, code))


def _found(module: CodeType, like: CodeType) -> CodeType:
    held = [module]
    while held:
        code = held.pop()
        if (code.co_name, code.co_firstlineno) == (like.co_name, like.co_firstlineno):
            return code
        held += [x for x in code.co_consts if isinstance(x, CodeType)]
    raise LookupError(like.co_name)


@contextmanager
def applied(edit: Edit, function: FunctionType) -> Iterator[None]:
    """The function runs the edit's code."""
    before = function.__code__
    function.__code__ = edit.code
    try:
        yield
    finally:
        function.__code__ = before


def function_of(place: Place) -> FunctionType:
    """The live function that a statement stands in."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) != place.file:
            continue
        for value in vars(module).values():
            held = value.function if isinstance(value, ScheduleFunction) else value
            code = getattr(held, "__code__", None)
            if code and (code.co_filename, code.co_firstlineno) == (place.file, place.first):
                return held  # type: ignore[no-any-return]
    raise LookupError(place)
