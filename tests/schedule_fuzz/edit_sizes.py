"""Edits of sizes: what a declaration says of rows, columns, bytes, registers, slots and counts.

A declaration is a call that takes memory or registers (`DECLARES`), what describes one (a layout),
or a tuple whose first element is a name, such as a row of a table of tiles. Functions of the same
file that the schedule calls are edited too: shared declarations stand there (`inlined`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from plan import Plan, called, set_keyword, shown

# By the name of what is called: positions of numbers among its arguments, all of them: None.
DECLARES: dict[str, tuple[int, ...] | None] = {
    "tile": (1,), "ring": (), "room": (1,), "exchange": (1,), "region": (1,), "columns": (1,),
    "named": (2,), "block": (1,), "scalar": (1,), "share": (), "role": (), "pipeline": (),
    "Subtiled": None, "Padded": None, "Reads": (1,), "Xor": (), "scratch": (), "cta_cluster": (0,),
}  # fmt: skip
NUMBERS = {
    "rows", "row_bytes", "slots", "extra", "align", "columns", "count", "waves", "width", "readers",
    "warps", "warpgroups", "registers", "producer_threads", "releases", "spread", "stride",
}  # fmt: skip
REMOVED = {"extra", "align", "over", "file", "apart", "slots", "producer_threads", "releases",
           "resident", "by_warps", "within"}  # fmt: skip
Put = Callable[[ast.expr], None]


def _places(p: Plan) -> Iterator[tuple[str, Put, ast.expr]]:
    """(what, how to change it, what it is) of every number of a declaration that is executed."""
    for node in p.declarations():
        if isinstance(node, ast.Call):
            name = called(node)
            if name == "range":
                yield from _arguments(node, "range", None)
            elif name in DECLARES:
                yield from _arguments(node, name, DECLARES[name])
        elif isinstance(node, ast.Tuple | ast.List):
            first = node.elts[0] if node.elts else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                for n, x in enumerate(node.elts):
                    if _number(x):
                        yield f"of {first.value!r}", _setter(node.elts, n), x
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if isinstance(node.left, ast.List):  # [area] * spans
                yield "count of a list", lambda v, node=node: setattr(node, "right", v), node.right
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if _number(node.value) and called(node.value) != "choice":
                yield (
                    f"{node.targets[0].id} =",
                    lambda v, s=node: setattr(s, "value", v),
                    node.value,
                )
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            yield from _several(node.targets[0].elts, node.value)


def _several(targets: list[ast.expr], value: ast.expr) -> Iterator[tuple[str, Put, ast.expr]]:
    """Of an assignment to several names."""
    for n, (target, one) in enumerate(zip(targets, getattr(value, "elts", ()), strict=False)):
        if isinstance(target, ast.Name) and _number(one) and called(one) != "choice":
            yield f"{target.id} =", _setter(value.elts, n), one  # type: ignore[attr-defined]


def _arguments(
    call: ast.Call, name: str, places: tuple[int, ...] | None
) -> Iterator[tuple[str, Put, ast.expr]]:
    for n, x in enumerate(call.args):
        if (places is None or n in places) and _number(x):
            yield f"{_label(call)} [{n}]", _setter(call.args, n), x
    for k in call.keywords:
        if k.arg in NUMBERS and _number(k.value):
            yield f"{_label(call)} {k.arg}=", lambda v, k=k: setattr(k, "value", v), k.value


def _label(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return f"{called(call)}({shown(first) if first is not None else ''})"


def _setter(items: list[ast.expr], n: int) -> Put:
    return lambda value: items.__setitem__(n, value)


def _number(node: ast.expr) -> bool:
    """Whether an expression may be a number: no text, list or condition."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.IfExp):
        return _number(node.body) and _number(node.orelse)
    if isinstance(node, ast.Call):
        return called(node) in ("len", "min", "max", "choice", "rows_in_eights", "rows_of")
    if isinstance(node, ast.BinOp):
        return _number(node.left) and _number(node.right)
    if isinstance(node, ast.UnaryOp):
        return _number(node.operand)
    return isinstance(node, ast.Name | ast.Attribute)


# (how it is said, what it does): factors, and steps of one and of what things are aligned to.
CHANGES: tuple[tuple[str, ast.operator, int], ...] = (
    ("/ 2", ast.FloorDiv(), 2), ("/ 2", ast.FloorDiv(), 2), ("/ 4", ast.FloorDiv(), 4),
    ("* 2", ast.Mult(), 2), ("+ 1", ast.Add(), 1), ("- 1", ast.Sub(), 1), ("- 1", ast.Sub(), 1),
    ("+ 8", ast.Add(), 8), ("- 8", ast.Sub(), 8), ("- 16", ast.Sub(), 16), ("+ 16", ast.Add(), 16),
)  # fmt: skip


def size(p: Plan) -> str | None:
    """One number of a declaration."""
    places = list(_places(p))
    if not places:
        return None
    what, put, value = p.rng.choice(places)
    said, op, by = p.rng.choice(CHANGES)
    made = ast.BinOp(copy.deepcopy(value), op, ast.Constant(by))
    put(ast.fix_missing_locations(ast.copy_location(made, value)))
    return f"{what} {shown(value)} {said}"


def left_out(p: Plan) -> str | None:
    """A declaration without what it need not say, or without an area, a tile, an element."""
    calls = [(x, k) for x in p.declarations() if isinstance(x, ast.Call) and called(x) in DECLARES
             for k in x.keywords if k.arg in REMOVED]  # fmt: skip
    if not calls:
        return None
    call, keyword = p.rng.choice(calls)
    label = _label(call)
    set_keyword(call, keyword.arg or "", None)
    return f"{label}: no {keyword.arg}={shown(keyword.value)}"


def inlined(text: str, shared: Callable[[str], str | None]) -> str:
    """The source with the modules that schedules share in its own text, in the place of imports of
    them, so that what the schedule calls of them is edited too. `shared`: the text of such a
    module, None for another."""
    module = ast.parse(text)
    module.body = list(_with_shared(module, shared, set()))
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _with_shared(
    module: ast.Module, shared: Callable[[str], str | None], seen: set[str]
) -> Iterator[ast.stmt]:
    for stmt in module.body:
        name = stmt.module or "" if isinstance(stmt, ast.ImportFrom) else ""
        source = shared(name)
        if source is None:
            yield stmt
        elif name not in seen:
            seen.add(name)
            for inner in _with_shared(ast.parse(source), shared, seen):
                future = isinstance(inner, ast.ImportFrom) and inner.module == "__future__"
                if not future and not isinstance(inner, ast.Expr):
                    yield inner
