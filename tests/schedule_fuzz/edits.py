"""Random edits of a schedule's source: what a person may write by mistake, or to try something.

A schedule file is read as a syntax tree; an edit changes the tree of its function and says in one
line what it did. The same seed gives the same edits. Only statements that the schedule executes for
its problem are touched: a change of what is not run is no edit.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECTIONS = ("prologue", "epilogue", "each_item")
MESSAGES = ("publish", "follow", "heed", "turn", "give_sum", "release", "refill", "next_tiles",
            "next_keys", "next_item", "hand_over", "finish", "leave")  # fmt: skip
# Names that stand for each other: what a slip of the pen exchanges.
PAIRS = (("K", "V"), ("lower", "upper"), ("left", "right"), ("p_left", "p_right"), ("A0", "A1"),
         ("max_left", "max_right"), ("sum_left", "sum_right"), ("A0", "B"))  # fmt: skip
DEEPEST = 6  # tiles that an offset is moved to, at most
ORDERS = 3  # statements that a word is moved over, at most


@dataclass(frozen=True)
class Edit:
    """One change: its kind, and what it did."""

    kind: str
    text: str


@dataclass(frozen=True)
class Edited:
    """A schedule after its edits: source text and knobs."""

    text: str
    knobs: Mapping[str, Any]
    edits: tuple[Edit, ...]

    @property
    def kind(self) -> str:
        return self.edits[0].kind if len(self.edits) == 1 else "several"


@dataclass
class Block:
    """Statements that are recorded one after another: of a cluster, a section, a role's loop."""

    label: str
    part: str  # "loop", or the section
    body: list[ast.stmt]
    group: str  # blocks of one stream of code: a word may be moved between these


@dataclass
class Plan:
    """A schedule function's tree while it is edited."""

    module: ast.Module
    function: ast.FunctionDef
    executed: frozenset[int]
    spoken: frozenset[int]
    knobs: dict[str, Any]
    choices: Mapping[str, Sequence[Any]]
    rng: random.Random
    blocks: list[Block] = field(default_factory=list)
    loops: list[ast.For] = field(default_factory=list)

    def survey(self) -> None:
        """Find the blocks again; an edit may have made or removed some."""
        self.blocks, self.loops = [], []
        self._walk(self.function.body, "", "", "")

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
                self._walk(stmt.body, label, part, group)

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
        for stmt in ast.walk(self.function):
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


# ---- edits of words ------------------------------------------------------------------------------


def _offset(p: Plan) -> str | None:
    places = p.tile_arguments()
    if not places:
        return None
    block, stmt, call, n = p.rng.choice(places)
    before = shown(stmt)
    by = p.rng.choice((1, -1, 1, -1, 2, -2))
    call.args[n] = moved_tile(call.args[n], by)
    return f"{block.label}: {before} -> {shown(stmt)}"


def _order(p: Plan) -> str | None:
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


def _move(p: Plan) -> str | None:
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


def _drop(p: Plan) -> str | None:
    places = p.words("loop")
    if not places:
        return None
    block, index = p.rng.choice(places)
    stmt = block.body.pop(index)
    _filled(block)
    return f"{block.label}: no {shown(stmt)}"


def _double(p: Plan) -> str | None:
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
        where = "behind it"
    else:
        where = _inserted(p, twin, block.group, None, ("loop",))
    return f"{block.label}: {shown(stmt)}, and {shown(twin)} {where}"


def _section(p: Plan) -> str | None:
    """Before or behind the loop: dropped, doubled, in another order, in another section."""
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


def _message(p: Plan) -> str | None:
    """Words that hand something to another role: dropped, doubled, moved, of another tile."""
    places = [(b, n) for b, n in p.words()
              if called(b.body[n].value) in MESSAGES]  # type: ignore[attr-defined]  # fmt: skip
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


def _argument(p: Plan) -> str | None:
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


# ---- edits of clusters and roles -----------------------------------------------------------------


def _clusters(p: Plan) -> str | None:
    """Swapped, dropped, doubled, cut in two, joined; an empty one."""
    body, found = p.clusters()
    if not found:
        return None
    index = p.rng.choice(found)
    stmt = body[index]
    assert isinstance(stmt, ast.With)
    head, way = shown(stmt.items[0].context_expr), p.rng.randrange(8)
    if way == 0 and len(found) > 1:
        other = p.rng.choice([n for n in found if n != index])
        body[index], body[other] = body[other], body[index]
        return f"{head} and {shown(body[index].items[0].context_expr)} change places"  # type: ignore[attr-defined]
    if way == 1 and len(found) > 1:
        del body[index]
        return f"no {head}"
    if way == 2:
        twin = copy.deepcopy(stmt)
        _renamed(twin, " again")
        body.insert(p.rng.randint(0, len(body)), twin)
        return f"{head} twice"
    if way in (3, 4) and len(stmt.body) > 1:
        cut = p.rng.randint(1, len(stmt.body) - 1)
        twin = copy.deepcopy(stmt)
        twin.body, stmt.body = stmt.body[cut:], stmt.body[:cut]
        _renamed(twin, " behind")
        body.insert(index + 1, twin)
        return f"{head} cut in two behind {cut}"
    if way in (5, 6):
        behind = [n for n in found if n == index + 1]
        if behind:
            after = body.pop(index + 1)
            assert isinstance(after, ast.With)
            stmt.body += after.body
            return f"{head} and {shown(after.items[0].context_expr)} are one"
    at = p.rng.randint(0, len(body))
    body.insert(at, parsed("with cluster('none'):\n    pass", stmt))
    return f"an empty cluster at {at}"


def _renamed(stmt: ast.With, behind: str) -> None:
    call = stmt.items[0].context_expr
    assert isinstance(call, ast.Call)
    name = call.args[0]
    if isinstance(name, ast.Constant):
        call.args[0] = ast.copy_location(ast.Constant(name.value + behind), name)


def _set_keyword(call: ast.Call, name: str, value: ast.expr | None) -> None:
    call.keywords = [k for k in call.keywords if k.arg != name]
    if value is not None:
        made = ast.keyword(name, value)
        call.keywords.append(ast.fix_missing_locations(ast.copy_location(made, call)))


def _priority(p: Plan) -> str | None:
    body, found = p.clusters()
    if not found:
        return None
    call = body[p.rng.choice(found)].items[0].context_expr  # type: ignore[attr-defined]
    before, value = shown(call), p.rng.randrange(4)
    _set_keyword(call, "priority", ast.Constant(value))
    return f"{before} -> {shown(call)}"


def _wait(p: Plan) -> str | None:
    """A wait by hand, strong or weak."""
    body, found = p.clusters()
    if not found:
        return None
    call = body[p.rng.choice(found)].items[0].context_expr  # type: ignore[attr-defined]
    before = shown(call)
    counts = {"vm": (0, 0, 1, 2, 3, 4, 6, 8, 12, 16), "lgkm": (0, 0, 0, 1, 2, 4, 8)}
    drawn = {name: p.rng.choice(of) for name, of in counts.items() if p.rng.random() < 0.85}
    said = ", ".join(f"{name}={count}" for name, count in drawn.items())
    value = parsed(f"mlagen_dsl.Wait({said})", call).value
    _set_keyword(call, "wait", value)
    return f"{before} -> wait=Wait({said})"


def _roles(p: Plan) -> str | None:
    """Stagger, waves of a role, code of its own; on Hopper the number of warpgroups."""
    calls = p.calls("roles")
    if not calls:
        return _warpgroups(p)
    call = p.rng.choice(calls)
    before, way = shown(call), p.rng.randrange(4)
    if way == 0:
        _set_keyword(call, "apart", ast.Constant(True))
    elif way == 1:
        ranges = [k for k in call.keywords if isinstance(k.value, ast.Call)]
        waves = p.rng.choice((1, 2, 4, 8))
        cut = p.rng.randint(1, 7)
        if len(ranges) == 1:
            ranges[0].value = parsed(f"range({waves})", call).value
        elif len(ranges) > 1:
            ranges[0].value = parsed(f"range({cut})", call).value
            ranges[1].value = parsed(f"range({cut}, 8)", call).value
    else:
        _set_keyword(call, "stagger", ast.Constant(p.rng.choice((0, 1, 2, 3))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None


def _warpgroups(p: Plan) -> str | None:
    calls = p.calls("role")
    if not calls:
        return None
    call = p.rng.choice(calls)
    before = shown(call)
    if p.rng.random() < 0.5:
        _set_keyword(call, "single", ast.Constant(p.rng.random() < 0.5))
    else:
        _set_keyword(call, "warpgroups", ast.Constant(p.rng.choice((1, 2, 3))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None


def _only(p: Plan) -> str | None:
    """A word for one role alone; a limit taken away, or turned to the other role."""
    limits = [x for x in ast.walk(p.function) if isinstance(x, ast.With) and p.runs(x)
              and called(x.items[0].context_expr) == "only"]  # fmt: skip
    way = p.rng.randrange(3)
    if limits and way == 0:
        limit = p.rng.choice(limits)
        for node in ast.walk(p.function):
            for name in ("body", "orelse"):
                held = getattr(node, name, None)
                if isinstance(held, list) and limit in held:
                    at = held.index(limit)
                    held[at : at + 1] = limit.body
                    return f"no {shown(limit.items[0].context_expr)} around {shown(limit.body[0])}"
    if limits and way == 1:
        call = p.rng.choice(limits).items[0].context_expr
        before = shown(call)
        assert isinstance(call, ast.Call)
        other = "upper" if "lower" in before else "lower"
        call.args = [parsed(f"waves['{other}']", call).value]
        return f"{before} -> {shown(call)}"
    if not p.calls("roles"):
        return None
    roles = [k.arg for k in p.calls("roles")[0].keywords if isinstance(k.value, ast.Call)]
    places = [(b, n) for b, n in p.words() if "only" not in b.label]
    if not places or not roles:
        return None
    block, index = p.rng.choice(places)
    stmt, role = block.body[index], p.rng.choice(roles)
    made = parsed(f"with only(waves['{role}']):\n    pass", stmt)
    made.items[0].context_expr.func = parsed("mlagen_dsl.only", stmt).value
    made.body, block.body[index] = [stmt], made
    return f"{block.label}: {shown(stmt)} for {role} alone"


def _step(p: Plan) -> str | None:
    if not p.loops:
        return None
    loop = p.rng.choice(p.loops)
    call = loop.iter
    assert isinstance(call, ast.Call)
    before = shown(call)
    _set_keyword(call, "step", ast.Constant(p.rng.choice((1, 2, 3, 4))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None


# ---- weaves, slots, knobs ------------------------------------------------------------------------


def _some_pattern(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return "even"
    terms = [
        f"{rng.choice((1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24))}x{rng.randint(1, 4)}:{rng.randint(0, 6)}"
        for _ in range(rng.randint(1, 3))
    ]
    return " ".join(terms)


def _pattern(p: Plan) -> str | None:
    calls = p.calls("weave")
    if not calls:
        return None
    call = p.rng.choice(calls)
    first = shown(call.args[0])
    pattern = _some_pattern(p.rng)
    _set_keyword(call, "pattern", ast.Constant(pattern))
    return f"weave({first}, ...): pattern {pattern!r}"


def _weave(p: Plan) -> str | None:
    """Woven words taken apart or exchanged; others woven."""
    places = p.words("loop")
    woven = [(b, n) for b, n in places if called(b.body[n].value) == "weave"]  # type: ignore[attr-defined]
    way = p.rng.randrange(4)
    if woven and way < 3:
        block, index = p.rng.choice(woven)
        call = block.body[index].value  # type: ignore[attr-defined]
        before = shown(call)
        if way == 0:
            parts = list(call.args)
            if p.rng.random() < 0.3:
                p.rng.shuffle(parts)
            block.body[index : index + 1] = [ast.copy_location(ast.Expr(x), call) for x in parts]
            return f"{block.label}: {before} one after another: " + ", ".join(map(shown, parts))
        if way == 1:
            p.rng.shuffle(call.args)
        else:
            _set_keyword(call, "ordered", ast.Constant(True))
        after = shown(call)
        return f"{block.label}: {before} -> {after}" if after != before else None
    pairs = [(b, n) for b, n in places if (b, n + 1) in places and "weave" not in
             (called(b.body[n].value), called(b.body[n + 1].value))]  # type: ignore[attr-defined]  # fmt: skip
    if not pairs:
        return None
    block, index = p.rng.choice(pairs)
    one, two = (block.body[n].value for n in (index, index + 1))  # type: ignore[attr-defined]
    made = parsed(f"mlagen_dsl.weave(pattern={_some_pattern(p.rng)!r})", one)
    made.value.args = [one, two]
    if p.rng.random() < 0.3:
        _set_keyword(made.value, "ordered", ast.Constant(True))
    block.body[index : index + 2] = [made]
    return f"{block.label}: {shown(made)}"


def _slots(p: Plan) -> str | None:
    """How many slots a ring has, or how far its copies run ahead, whatever the knob offers."""
    names = re.compile(r"slot|spare|stage|ahead|late|band|held|boxes|early|waves")
    places: list[tuple[str, Callable[[ast.expr], None], ast.expr]] = []
    for stmt in self_statements(p):
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            name = stmt.targets[0].id
            if names.search(name) and called(stmt.value) != "roles":
                places.append((name, lambda v, s=stmt: setattr(s, "value", v), stmt.value))
            for call in ast.walk(stmt.value):
                if isinstance(call, ast.Call):
                    for k in call.keywords:
                        if k.arg and names.search(k.arg):
                            places.append(
                                (f"{called(call)}({k.arg}=)", lambda v, k=k: setattr(k, "value", v),
                                 k.value)
                            )  # fmt: skip
    if not places:
        return None
    name, put, value = p.rng.choice(places)
    by = p.rng.choice((1, -1, 2))
    if called(value) == "choice" and p.rng.random() < 0.6:
        chosen = p.rng.randint(0, 6)
        put(ast.copy_location(ast.Constant(chosen), value))
        return f"{name} = {chosen}"
    if isinstance(value, ast.Constant) or isinstance(value, ast.Compare):
        return None
    op: ast.operator = ast.Add() if by > 0 else ast.Sub()
    made = ast.BinOp(value, op, ast.Constant(abs(by)))
    put(ast.fix_missing_locations(ast.copy_location(made, value)))
    return f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def self_statements(p: Plan) -> Iterator[ast.stmt]:
    """Executed statements of the function, outside of its loops."""
    for stmt in p.function.body:
        if isinstance(stmt, ast.stmt) and p.runs(stmt) and not isinstance(stmt, ast.For):
            yield stmt


def _knobs(p: Plan) -> str | None:
    """One to three knobs among their choices."""
    several = [name for name, choices in p.choices.items() if len(choices) > 1]
    if not several:
        return None
    said = []
    for name in p.rng.sample(several, min(len(several), p.rng.randint(1, 3))):
        p.knobs[name] = p.rng.choice(p.choices[name])
        said.append(f"{name}={p.knobs[name]}")
    return "knobs " + ", ".join(said)


KINDS: dict[str, Callable[[Plan], str | None]] = {
    "offset": _offset,
    "order": _order,
    "move": _move,
    "drop": _drop,
    "double": _double,
    "section": _section,
    "message": _message,
    "argument": _argument,
    "clusters": _clusters,
    "priority": _priority,
    "wait": _wait,
    "roles": _roles,
    "only": _only,
    "step": _step,
    "pattern": _pattern,
    "weave": _weave,
    "slots": _slots,
    "knobs": _knobs,
}
# How often a kind is drawn. The first of several edits may be any; what is refused almost always
# need not be tried as often as what may be right or wrong.
WEIGHTS = {
    "gfx950": {
        "offset": 12, "order": 12, "move": 12, "drop": 5, "double": 6, "section": 6, "argument": 4,
        "clusters": 10, "priority": 3, "wait": 6, "roles": 5, "only": 5, "pattern": 7, "weave": 8,
        "slots": 8, "knobs": 8,
    },
    "sm_90a": {
        "offset": 12, "order": 22, "drop": 5, "double": 6, "section": 8, "message": 14,
        "argument": 6, "roles": 3, "step": 3, "slots": 6, "knobs": 8,
    },
}  # fmt: skip
TRIES = 40


def edited(
    text: str,
    name: str,
    seed: str,
    *,
    target: str,
    executed: frozenset[int],
    spoken: frozenset[int],
    knobs: Mapping[str, Any],
    choices: Mapping[str, Sequence[Any]],
) -> Edited:
    """The schedule `name` of the source `text` after one to three random edits. `executed`: lines
    that the unedited schedule runs; `spoken`: those that record an operation; `choices`: of its knobs; `kinds`: only these."""
    rng = random.Random(seed)
    module = ast.parse(text)
    function = next(x for x in module.body if isinstance(x, ast.FunctionDef) and x.name == name)
    plan = Plan(module, function, executed, spoken, dict(knobs), choices, rng)
    weights = WEIGHTS[target]
    wanted = rng.choices((1, 2, 3), (75, 18, 7))[0]
    made: list[Edit] = []
    for _ in range(TRIES):
        kind = rng.choices([*weights], [*weights.values()])[0]
        plan.survey()
        said = KINDS[kind](plan)
        if said is not None:
            made.append(Edit(kind, said))
        if len(made) == wanted:
            break
    module.body.insert(
        _behind_imports(module), ast.parse("import mlagen.dsl as mlagen_dsl").body[0]
    )
    return Edited(ast.unparse(ast.fix_missing_locations(module)) + "\n", plan.knobs, tuple(made))


def _behind_imports(module: ast.Module) -> int:
    """Behind the docstring and what comes from __future__."""
    first = 1 if isinstance(module.body[0], ast.Expr) else 0
    while isinstance(module.body[first], ast.ImportFrom) and (
        module.body[first].module == "__future__"  # type: ignore[attr-defined]
    ):
        first += 1
    return first
