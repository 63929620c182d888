"""Edits of clusters, their waits and priorities, and of roles."""

from __future__ import annotations

import ast
import copy

from plan import Plan, called, parsed, set_keyword, shown


def clusters(p: Plan) -> str | None:
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
        _renamed(twin, " after")
        body.insert(index + 1, twin)
        return f"{head} cut in two after {cut}"
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


def priority(p: Plan) -> str | None:
    body, found = p.clusters()
    if not found:
        return None
    call = body[p.rng.choice(found)].items[0].context_expr  # type: ignore[attr-defined]
    before, value = shown(call), p.rng.randrange(4)
    set_keyword(call, "priority", ast.Constant(value))
    return f"{before} -> {shown(call)}"


def wait(p: Plan) -> str | None:
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
    set_keyword(call, "wait", value)
    return f"{before} -> wait=Wait({said})"


def roles(p: Plan) -> str | None:
    """Stagger, waves of a role, code of its own; on Hopper the number of warpgroups."""
    calls = p.calls("roles")
    if not calls:
        return _warpgroups(p)
    call = p.rng.choice(calls)
    before, way = shown(call), p.rng.randrange(4)
    if way == 0:
        set_keyword(call, "apart", ast.Constant(True))
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
        set_keyword(call, "stagger", ast.Constant(p.rng.choice((0, 1, 2, 3))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None


def _warpgroups(p: Plan) -> str | None:
    calls = p.calls("role")
    if not calls:
        return None
    call = p.rng.choice(calls)
    before = shown(call)
    if p.rng.random() < 0.5:
        set_keyword(call, "single", ast.Constant(p.rng.random() < 0.5))
    else:
        set_keyword(call, "warpgroups", ast.Constant(p.rng.choice((1, 2, 3))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None


def only(p: Plan) -> str | None:
    """A word for one role alone; a limit taken away, or turned to the other role."""
    limits = [x for x in p.statements() if isinstance(x, ast.With) and p.runs(x)
              and called(x.items[0].context_expr) == "only"]  # fmt: skip
    way = p.rng.randrange(3)
    if limits and way == 0:
        limit = p.rng.choice(limits)
        for node in p.statements():
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


def step(p: Plan) -> str | None:
    if not p.loops:
        return None
    loop = p.rng.choice(p.loops)
    call = loop.iter
    assert isinstance(call, ast.Call)
    before = shown(call)
    set_keyword(call, "step", ast.Constant(p.rng.choice((1, 2, 3, 4))))
    after = shown(call)
    return f"{before} -> {after}" if after != before else None
