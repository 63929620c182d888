"""A schedule's function as a syntax tree that is edited: its blocks, words, clusters and calls."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECTIONS = ("prologue", "epilogue", "each_item")


@dataclass
class Block:
    """Statements that are recorded one after another: of a cluster, a section, a role's loop."""

    label: str
    part: str  # "loop", or the section
    body: list[ast.stmt]
    group: str  # blocks of one stream of code: a word may be moved between these


@dataclass
class Plan:
    """A schedule function's tree, and those of the functions of its file that it calls, while they
    are edited. `names`: by function, what its names stand for when it ends."""

    module: ast.Module
    function: ast.FunctionDef
    executed: frozenset[int]
    spoken: frozenset[int]
    knobs: dict[str, Any]
    choices: Mapping[str, Sequence[Any]]
    rng: random.Random
    names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    loops: list[ast.For] = field(default_factory=list)

    def survey(self) -> None:
        """Find the blocks again; an edit may have made or removed some."""
        self.blocks, self.loops = [], []
        for function in self.functions():
            self._walk(function.body, "", "", "")

    def functions(self) -> list[ast.FunctionDef]:
        """The schedule's function, and those of the file that it calls: loops that schedules share
        stand there."""
        of_file = [x for x in self.module.body if isinstance(x, ast.FunctionDef)]
        return [self.function, *(x for x in of_file if x is not self.function and self.runs(x))]

    def statements(self) -> Iterator[ast.AST]:
        """All nodes of these functions."""
        for function in self.functions():
            yield from ast.walk(function)

    def _walk(self, body: list[ast.stmt], label: str, part: str, group: str) -> None:
        for stmt in body:
            if not self.runs(stmt):
                continue
            if isinstance(stmt, ast.With):
                call = stmt.items[0].context_expr
                call = call.body if isinstance(call, ast.IfExp) else call
                name, said = called(call), ast.unparse(stmt.items[0].context_expr)
                if name == "only":
                    self._block(f"{label} {said}", part, stmt.body, group)
                elif name == "cluster":
                    assert isinstance(call, ast.Call)
                    name = ast.unparse(call.args[0]).strip("'")
                    self._block(f"cluster {name}", "loop", stmt.body, group)
                elif name in SECTIONS:
                    self._block(said, name, stmt.body, said.partition("(")[2])
            elif isinstance(stmt, ast.For) and called(stmt.iter) == "tiles":
                self.loops.append(stmt)
                role = ast.unparse(stmt.iter.args[0]) + ")"  # type: ignore[attr-defined]
                if self.clustered(stmt):
                    self._walk(stmt.body, "loop", "loop", role)
                else:
                    self._block(f"loop of {role[:-1]}", "loop", stmt.body, role)
            elif isinstance(stmt, ast.For):
                self._block(label, part, stmt.body, group)
            elif isinstance(stmt, ast.If) and part:
                for branch in (stmt.body, stmt.orelse):
                    if branch and any(self.runs(x) for x in branch):
                        self._block(label, part, branch, group)
            elif isinstance(stmt, ast.If):
                for branch in (stmt.body, stmt.orelse):
                    self._walk(branch, label, part, group)

    def _block(self, label: str, part: str, body: list[ast.stmt], group: str) -> None:
        self.blocks.append(Block(label, part, body, group))
        self._walk(body, label, part, group)

    def runs(self, stmt: ast.stmt) -> bool:
        """Whether the unedited schedule executes the statement."""
        return within(stmt, self.executed)

    @staticmethod
    def clustered(loop: ast.For) -> bool:
        return any(isinstance(x, ast.With) and called(x.items[0].context_expr) == "cluster"
                   for x in loop.body)  # fmt: skip

    # ---- what can be chosen --------------------------------------------------------------------

    def declarations(self) -> list[tuple[str, ast.AST]]:
        """All that stands outside of loops and sections in executed statements, with the name of
        its function."""
        made = []
        for function in self.functions():
            found: list[ast.AST] = []
            self._declared(function.body, found)
            made += [(function.name, node) for node in found]
        return made

    def stands_for(self, function: str, node: ast.expr) -> Any:
        """What a name of a function, or an attribute of one, stands for; None: it is not known."""
        try:
            return eval(ast.unparse(node), {}, dict(self.names[function]))
        except Exception:  # of a comprehension's variable too
            return None

    def _declared(self, body: list[ast.stmt], found: list[ast.AST]) -> None:
        for stmt in body:
            if not self.runs(stmt) or isinstance(stmt, ast.With):
                continue
            if isinstance(stmt, ast.For) and called(stmt.iter) == "tiles":
                continue
            if isinstance(stmt, ast.For | ast.If | ast.FunctionDef):
                found += list(ast.walk(getattr(stmt, "iter", ast.Pass())))
                self._declared(stmt.body, found)
                self._declared(getattr(stmt, "orelse", []), found)
            else:
                found += ast.walk(stmt)

    def words(self, *parts: str) -> list[tuple[Block, int]]:
        """Places of all words, those of `parts` ("loop", a section) alone."""
        return [
            (block, index)
            for block in self.blocks
            if not parts or block.part in parts
            for index, stmt in enumerate(block.body)
            if isinstance(stmt, ast.Expr)
            and isinstance(stmt.value, ast.Call)
            and within(stmt, self.spoken)
        ]

    def clusters(self) -> tuple[list[ast.stmt], list[int]]:
        """The loop's body, and where in it clusters stand."""
        for loop in self.loops:
            if self.clustered(loop):
                found = [n for n, x in enumerate(loop.body) if isinstance(x, ast.With)]
                return loop.body, found
        return [], []

    def calls(self, name: str) -> list[ast.Call]:
        """Executed calls of a function, anywhere in the schedule."""
        found = []
        for stmt in self.statements():
            if isinstance(stmt, ast.stmt) and not self.runs(stmt):
                continue
            if isinstance(stmt, ast.Call) and called(stmt) == name and (
                not self.executed or self.executed & set(range(stmt.lineno, stmt.end_lineno + 1))  # type: ignore[operator]
            ):  # fmt: skip
                found.append(stmt)
        return found

    def tile_arguments(self, *parts: str) -> list[tuple[Block, ast.stmt, ast.Call, int]]:
        """Arguments of words that are tiles: `i`, `i + 2`."""
        found = []
        for block, index in self.words(*(parts or ("loop",))):
            stmt = block.body[index]
            for call in ast.walk(stmt):
                if isinstance(call, ast.Call):
                    found += [
                        (block, stmt, call, n)
                        for n, argument in enumerate(call.args)
                        if not isinstance(argument, ast.Call) and mentions(argument, "i")
                    ]
        return found


def within(stmt: ast.stmt, lines: frozenset[int]) -> bool:
    """Whether one of the lines is the statement's."""
    return not lines.isdisjoint(range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1))


def called(node: ast.AST) -> str:
    """The name of what is called, without what it belongs to."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(x, ast.Name) and x.id == name for x in ast.walk(node))


def shown(stmt: ast.AST) -> str:
    """A statement on one line, the head alone where it is long."""
    text = " ".join(ast.unparse(stmt).split())
    return text if len(text) < 90 else text[:87] + "..."


def moved_tile(argument: ast.expr, by: int) -> ast.expr:
    """`argument + by`, in short."""
    if isinstance(argument, ast.BinOp) and isinstance(argument.right, ast.Constant):
        sign = 1 if isinstance(argument.op, ast.Add) else -1
        total = sign * argument.right.value + by
        base = argument.left
    else:
        total, base = by, argument
    if not total:
        return base
    op: ast.operator = ast.Add() if total > 0 else ast.Sub()
    made = ast.BinOp(base, op, ast.Constant(abs(total)))
    return ast.fix_missing_locations(ast.copy_location(made, argument))


def parsed(text: str, like: ast.AST) -> Any:
    """A statement in the place of another one."""
    (stmt,) = ast.parse(text).body
    for node in ast.walk(stmt):
        if "lineno" in node._attributes:
            ast.copy_location(node, like)
    return stmt


def set_keyword(call: ast.Call, name: str, value: ast.expr | None) -> None:
    """Give a call another value of a keyword, or take the keyword away."""
    call.keywords = [k for k in call.keywords if k.arg != name]
    if value is not None:
        made = ast.keyword(name, value)
        call.keywords.append(ast.fix_missing_locations(ast.copy_location(made, call)))
