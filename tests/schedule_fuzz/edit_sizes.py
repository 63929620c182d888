"""Edits of sizes: what a declaration says of rows, columns, bytes, registers, slots and counts.

A declaration is what a schedule does outside of its loops and sections: calls that take memory or
registers, or make the parts of a kernel, with their numbers; tuples whose first element is a name,
such as a row of a table of tiles; and assignments. Functions of the same file that the schedule
calls are edited too: shared declarations stand there (`inlined`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from plan import Plan, called, set_keyword, shown

# Calls whose keywords may be left out.
DECLARES = (
    "tile", "tile_row", "ring", "room", "exchange", "region", "columns", "named", "block",
    "scalar", "share", "role", "pipeline", "Subtiled", "Padded", "Reads", "Xor", "scratch",
    "cta_cluster",
)  # fmt: skip
# What is counted is no size.
NO_SIZES = ("number", "len", "min", "max", "sum", "enumerate", "zip", "tuple", "dict")
OF_NUMBERS = ("len", "min", "max", "rows_in_eights", "rows_of", "query_rows")
REMOVED = {"extra", "align", "over", "file", "apart", "slots", "producer_threads", "releases",
           "resident", "by_warps", "within"}  # fmt: skip
Put = Callable[[ast.expr], None]
Place = tuple[str, Put, ast.expr]  # (what, how to change it, what it is)


def _places(p: Plan) -> Iterator[tuple[str, Place]]:
    """Every value of a declaration that is executed, with the function that has it."""
    for function, node in p.declarations():
        if isinstance(node, ast.Call) and called(node) == "choice":
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            places = _chosen(node) if name in p.choices else iter(())
        else:
            places = _of_node(node)
        for place in places:
            yield function, place


def _chosen(choice: ast.Call) -> Iterator[Place]:
    """Numbers that a knob has among its choices."""
    for holder in [choice, *(x for more in choice.args[1:] for x in ast.walk(more))]:
        items = getattr(holder, "args" if holder is choice else "elts", [])
        for n, x in enumerate(items):
            if isinstance(x, ast.Constant) and type(x.value) is int:
                yield f"{_label(choice)} {shown(x)}", _setter(items, n), x


def _of_node(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, ast.Call):
        if called(node) not in NO_SIZES:
            yield from _arguments(node)
    elif isinstance(node, ast.Tuple | ast.List):
        first = node.elts[0] if node.elts else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            for n, x in enumerate(node.elts):
                yield f"of {first.value!r}", _setter(node.elts, n), x
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if isinstance(node.left, ast.List):  # [area] * spans
            yield "count of a list", lambda v, node=node: setattr(node, "right", v), node.right
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        if called(node.value) != "choice":
            yield f"{node.targets[0].id} =", lambda v, s=node: setattr(s, "value", v), node.value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        yield from _several(node.targets[0].elts, node.value)


def _several(targets: list[ast.expr], value: ast.expr) -> Iterator[Place]:
    """Of an assignment to several names."""
    for n, (target, one) in enumerate(zip(targets, getattr(value, "elts", ()), strict=False)):
        if isinstance(target, ast.Name) and called(one) != "choice":
            yield f"{target.id} =", _setter(value.elts, n), one  # type: ignore[attr-defined]


def _arguments(call: ast.Call) -> Iterator[Place]:
    for n, x in enumerate(call.args):
        yield f"{_label(call)} [{n}]", _setter(call.args, n), x
    for k in call.keywords:
        yield f"{_label(call)} {k.arg}=", lambda v, k=k: setattr(k, "value", v), k.value


def _label(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return f"{called(call)}({shown(first) if first is not None else ''})"


def _setter(items: list[ast.expr], n: int) -> Put:
    return lambda value: items.__setitem__(n, value)


def _number(p: Plan, function: str, node: ast.expr) -> bool:
    """Whether an expression may be a number: no text, list, part or condition."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.IfExp):
        return _number(p, function, node.body) and _number(p, function, node.orelse)
    if isinstance(node, ast.Call):
        return called(node) in OF_NUMBERS
    if isinstance(node, ast.BinOp):
        return _number(p, function, node.left) and _number(p, function, node.right)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and _number(p, function, node.operand)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        value = p.stands_for(function, node)
        return value is None or type(value) is int
    return False


def _flag(p: Plan, function: str, node: ast.expr) -> bool:
    """Whether an expression is true or false."""
    if isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.Compare | ast.BoolOp):
        return isinstance(p.stands_for(function, node), bool)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


# (how it is said, what it does): factors, and steps of one and of what things are aligned to.
CHANGES: tuple[tuple[str, ast.operator, int], ...] = (
    ("/ 2", ast.FloorDiv(), 2), ("/ 2", ast.FloorDiv(), 2), ("/ 4", ast.FloorDiv(), 4),
    ("* 2", ast.Mult(), 2), ("+ 1", ast.Add(), 1), ("- 1", ast.Sub(), 1), ("- 1", ast.Sub(), 1),
    ("+ 8", ast.Add(), 8), ("- 8", ast.Sub(), 8), ("- 16", ast.Sub(), 16), ("+ 16", ast.Add(), 16),
    ("* 0", ast.Mult(), 0), ("* -1", ast.Mult(), -1), ("+ 2", ast.Add(), 2),
)  # fmt: skip


def size(p: Plan) -> str | None:
    """One number of a declaration."""
    places = [place for function, place in _places(p) if _number(p, function, place[2])]
    if not places:
        return None
    what, put, value = p.rng.choice(places)
    said, op, by = p.rng.choice(CHANGES)
    made = ast.BinOp(copy.deepcopy(value), op, ast.Constant(by))
    put(ast.fix_missing_locations(ast.copy_location(made, value)))
    return f"{what} {shown(value)} {said}"


def flag(p: Plan) -> str | None:
    """One condition that a declaration or a part is told: the contrary."""
    places = [place for function, place in _places(p) if _flag(p, function, place[2])]
    if not places:
        return None
    what, put, value = p.rng.choice(places)
    made = ast.UnaryOp(ast.Not(), copy.deepcopy(value))
    put(ast.fix_missing_locations(ast.copy_location(made, value)))
    return f"{what} not {shown(value)}"


def left_out(p: Plan) -> str | None:
    """A declaration without what it need not say, or without an area, a tile, an element."""
    calls = [
        (x, k)
        for _, x in p.declarations()
        if isinstance(x, ast.Call) and called(x) in DECLARES
        for k in x.keywords
        if k.arg in REMOVED
    ]
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
