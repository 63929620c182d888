"""Edits of words: another tile or operand, another place, dropped, doubled."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence

from plan import SECTIONS, Block, Plan, called, mentions, moved_tile, shown

EXCHANGES = ("store_p", "take_right_maximum", "take_left_maximum", "late_arrive", "store_sum",
             "release", "refill", "next_tiles", "next_keys", "next_item", "finish",
             "sync_sums")  # fmt: skip
# Names that stand for each other: what a slip of the pen exchanges.
PAIRS = (("K", "V"), ("lower", "upper"), ("left", "right"), ("p_left", "p_right"), ("A0", "A1"),
         ("max_left", "max_right"), ("sum_left", "sum_right"), ("A0", "B"))  # fmt: skip
ORDERS = 3  # statements that a word is moved over, at most


def offset(p: Plan) -> str | None:
    places = p.tile_arguments()
    if not places:
        return None
    block, stmt, call, n = p.rng.choice(places)
    before = shown(stmt)
    by = p.rng.choice((1, -1, 1, -1, 2, -2))
    call.args[n] = moved_tile(call.args[n], by)
    return f"{block.label}: {before} -> {shown(stmt)}"


def order(p: Plan) -> str | None:
    places = [(b, n) for b, n in p.words("loop") if len(b.body) > 1]
    if not places:
        return None
    block, index = p.rng.choice(places)
    to = p.rng.choice(
        [n for n in range(len(block.body)) if n != index and abs(n - index) <= ORDERS]
    )
    stmt = block.body.pop(index)
    block.body.insert(to, stmt)
    way = "up" if to < index else "down"
    return f"{block.label}: {shown(stmt)} {abs(to - index)} {way}"


def _inserted(p: Plan, stmt: ast.stmt, group: str, home: Block | None, parts: Sequence[str]) -> str:
    """Put a word somewhere among its stream's blocks; where that is."""
    blocks = [b for b in p.blocks if b.group == group and b.part in parts and b is not home]
    block = p.rng.choice(blocks or [home])  # type: ignore[list-item]
    at = p.rng.randint(0, len(block.body))
    block.body.insert(at, stmt)
    return f"{block.label} at {at}"


def move(p: Plan) -> str | None:
    places = p.words("loop")
    if not places:
        return None
    block, index = p.rng.choice(places)
    others = [b for b in p.blocks if b.group == block.group and b.part == "loop" and b is not block]
    if not others:
        return None
    stmt = block.body.pop(index)
    said = shown(stmt)
    where = _inserted(p, stmt, block.group, block, ("loop",))
    _filled(block)
    return f"{said} from {block.label} to {where}"


def _filled(block: Block) -> None:
    if not block.body:
        block.body.append(ast.Pass(lineno=0, end_lineno=0, col_offset=0))


def drop(p: Plan) -> str | None:
    places = p.words("loop")
    if not places:
        return None
    block, index = p.rng.choice(places)
    stmt = block.body.pop(index)
    _filled(block)
    return f"{block.label}: no {shown(stmt)}"


def double(p: Plan) -> str | None:
    places = p.words("loop")
    if not places:
        return None
    block, index = p.rng.choice(places)
    stmt = block.body[index]
    twin = copy.deepcopy(stmt)
    tiles = [
        (call, n)
        for call in ast.walk(twin)
        if isinstance(call, ast.Call)
        for n, argument in enumerate(call.args)
        if not isinstance(argument, ast.Call) and mentions(argument, "i")
    ]
    if tiles and p.rng.random() < 0.5:
        by = p.rng.choice((1, -1))
        for call, n in tiles:
            call.args[n] = moved_tile(call.args[n], by)
    if p.rng.random() < 0.6:
        block.body.insert(index + 1, twin)
        where = "after it"
    else:
        where = _inserted(p, twin, block.group, None, ("loop",))
    return f"{block.label}: {shown(stmt)}, and {shown(twin)} {where}"


def section(p: Plan) -> str | None:
    """Before or after the loop: dropped, doubled, in another order, in another section."""
    places = p.words(*SECTIONS)
    if not places:
        return None
    block, index = p.rng.choice(places)
    stmt, way = block.body[index], p.rng.randrange(4)
    if way == 0:
        del block.body[index]
        _filled(block)
        return f"{block.label}: no {shown(stmt)}"
    if way == 1:
        block.body.insert(p.rng.randint(0, len(block.body)), copy.deepcopy(stmt))
        return f"{block.label}: {shown(stmt)} twice"
    if way == 2 and len(block.body) > 1:
        to = p.rng.choice([n for n in range(len(block.body)) if n != index])
        block.body.insert(to, block.body.pop(index))
        return f"{block.label}: {shown(stmt)} at {to}"
    others = [
        b for b in p.blocks if b.group == block.group and b.part in SECTIONS and b is not block
    ]
    if not others:
        return None
    del block.body[index]
    _filled(block)
    return f"{shown(stmt)} from {block.label} to {_inserted(p, stmt, block.group, block, SECTIONS)}"


def message(p: Plan) -> str | None:
    """Words that pass something to another role: dropped, doubled, moved, of another tile."""
    places = [(b, n) for b, n in p.words()
              if called(b.body[n].value) in EXCHANGES]  # type: ignore[attr-defined]  # fmt: skip
    if not places:
        return None
    block, index = p.rng.choice(places)
    stmt, way = block.body[index], p.rng.randrange(4)
    if way == 0:
        del block.body[index]
        _filled(block)
        return f"{block.label}: no {shown(stmt)}"
    if way == 1:
        block.body.insert(p.rng.randint(0, len(block.body)), copy.deepcopy(stmt))
        return f"{block.label}: {shown(stmt)} twice"
    if way == 2:
        tiles = [t for t in p.tile_arguments("loop") if t[1] is stmt]
        if tiles:
            _, _, call, n = p.rng.choice(tiles)
            before = shown(stmt)
            call.args[n] = moved_tile(call.args[n], p.rng.choice((1, -1, 2, -2)))
            return f"{block.label}: {before} -> {shown(stmt)}"
    if len(block.body) < 2:
        return None
    to = p.rng.choice([n for n in range(len(block.body)) if n != index])
    block.body.insert(to, block.body.pop(index))
    return f"{block.label}: {shown(stmt)} at {to} instead of {index}"


def argument(p: Plan) -> str | None:
    """K for V, left for right, another constant."""
    places: list[tuple[Block, ast.stmt, Callable[[], None]]] = []
    other = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
    for block, index in p.words():
        stmt = block.body[index]
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and node.id in other:
                places.append((block, stmt, lambda x=node: setattr(x, "id", other[x.id])))
            elif isinstance(node, ast.Attribute) and node.attr in other:
                places.append((block, stmt, lambda x=node: setattr(x, "attr", other[x.attr])))
            elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                value = node.value
                if isinstance(value.value, bool):
                    places.append((block, stmt, lambda x=value: setattr(x, "value", not x.value)))
            elif isinstance(node, ast.Call):
                for x in node.args:
                    if isinstance(x, ast.Constant) and type(x.value) is int:
                        places.append((block, stmt, lambda x=x: setattr(x, "value", 1 - x.value)))
    if not places:
        return None
    block, stmt, change = p.rng.choice(places)
    before = shown(stmt)
    change()
    return f"{block.label}: {before} -> {shown(stmt)}"
