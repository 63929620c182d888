"""Edits of interleaves, slots and knobs."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator

from plan import Plan, called, parsed, set_keyword, shown


def _some_pattern(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return "even"
    times = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24)
    terms = [
        f"{rng.choice(times)}x{rng.randint(1, 4)}:{rng.randint(0, 6)}"
        for _ in range(rng.randint(1, 3))
    ]
    return " ".join(terms)


def pattern(p: Plan) -> str | None:
    calls = p.calls("interleave")
    if not calls:
        return None
    call = p.rng.choice(calls)
    first = shown(call.args[0])
    pattern = _some_pattern(p.rng)
    set_keyword(call, "pattern", ast.Constant(pattern))
    return f"interleave({first}, ...): pattern {pattern!r}"


def interleave(p: Plan) -> str | None:
    """Interleaved words taken apart or exchanged; others interleaved."""
    places = p.words("loop")
    interleaved = [(b, n) for b, n in places if called(b.body[n].value) == "interleave"]  # type: ignore[attr-defined]
    way = p.rng.randrange(4)
    if interleaved and way < 3:
        block, index = p.rng.choice(interleaved)
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
            set_keyword(call, "ordered", ast.Constant(True))
        after = shown(call)
        return f"{block.label}: {before} -> {after}" if after != before else None
    pairs = [(b, n) for b, n in places if (b, n + 1) in places and "interleave" not in
             (called(b.body[n].value), called(b.body[n + 1].value))]  # type: ignore[attr-defined]  # fmt: skip
    if not pairs:
        return None
    block, index = p.rng.choice(pairs)
    one, two = (block.body[n].value for n in (index, index + 1))  # type: ignore[attr-defined]
    made = parsed(f"mlagen_dsl.interleave(pattern={_some_pattern(p.rng)!r})", one)
    made.value.args = [one, two]
    if p.rng.random() < 0.3:
        set_keyword(made.value, "ordered", ast.Constant(True))
    block.body[index : index + 2] = [made]
    return f"{block.label}: {shown(made)}"


def slots(p: Plan) -> str | None:
    """How many slots a ring has, or how far its copies run ahead, whatever the knob offers."""
    names = re.compile(r"slot|spare|stage|ahead|late|band|held|boxes|early|waves")
    places: list[tuple[str, Callable[[ast.expr], None], ast.expr]] = []
    for stmt in outside_loops(p):
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
    if isinstance(value, ast.Constant | ast.Compare):
        return None
    op: ast.operator = ast.Add() if by > 0 else ast.Sub()
    made = ast.BinOp(value, op, ast.Constant(abs(by)))
    put(ast.fix_missing_locations(ast.copy_location(made, value)))
    return f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def outside_loops(p: Plan) -> Iterator[ast.stmt]:
    """Executed statements of the functions, outside of their loops."""
    for function in p.functions():
        for stmt in function.body:
            if p.runs(stmt) and not isinstance(stmt, ast.For):
                yield stmt


def knobs(p: Plan) -> str | None:
    """One to three knobs among their choices."""
    several = [name for name, choices in p.choices.items() if len(choices) > 1]
    if not several:
        return None
    said = []
    for name in p.rng.sample(several, min(len(several), p.rng.randint(1, 3))):
        p.knobs[name] = p.rng.choice(p.choices[name])
        said.append(f"{name}={p.knobs[name]}")
    return "knobs " + ", ".join(said)
