"""The instructions that threads agree with each other by, and the registers that steer them."""

from __future__ import annotations

from collections.abc import Mapping

from mlagen.ptx import Graph, Kind, Vector
from mlagen.ptx.effects import names_in

_NO_TYPES: Mapping[str, str] = {}

# Kinds that the protocol between threads is made of: a branch around none of these decides nothing.
PROTOCOL = frozenset(Kind) - {Kind.PLAIN, Kind.BRANCH, Kind.COLLECTIVE}


def relevant(
    graph: Graph, types: Mapping[str, str] = _NO_TYPES
) -> tuple[frozenset[str], frozenset[str | int]]:
    """Registers that reach an operand of the protocol or a branch's predicate (a slice that
    ignores order), and those of them, and numbers, that stores keep for loads that steer.
    Everything else is arithmetic of the kernel's own business. `types`: of registers."""
    wanted: set[str] = set()
    producers: dict[str, list[int]] = {}
    for index, names in enumerate(graph.writes):
        for name in names:
            producers.setdefault(name, []).append(index)
    work: list[str] = []

    def want(names: tuple[str, ...]) -> None:
        for name in names:
            if name not in wanted:
                wanted.add(name)
                work.append(name)

    for index, kind in enumerate(graph.kinds):
        instruction = graph.instructions[index]
        stores = kind is Kind.OPAQUE and instruction.name in ("ld", "st")
        if stores or kind in (
            Kind.SHARED_STORE,
            Kind.GENERIC_STORE,
            Kind.SHARED_LOAD,
            Kind.GENERIC_LOAD,
        ):
            # The address and the guard, not the data.
            for operand in instruction.operands:
                if getattr(operand, "base", None):
                    want((operand.base,))  # type: ignore[union-attr]
            if instruction.guard:
                want((instruction.guard.register,))
        elif kind is Kind.WGMMA:
            operands = instruction.operands[1:3]
            want(tuple(o for o in operands if isinstance(o, str)))
            if instruction.guard:
                want((instruction.guard.register,))
        elif kind in PROTOCOL or kind is Kind.BRANCH:
            want(graph.reads[index])

    def follow() -> None:
        while work:
            for index in producers.get(work.pop(), ()):
                if graph.kinds[index] is not Kind.WGMMA:
                    want(graph.reads[index])

    follow()
    loads = (Kind.SHARED_LOAD, Kind.GENERIC_LOAD)
    steers = any(
        kind in loads and not wanted.isdisjoint(graph.writes[i])
        for i, kind in enumerate(graph.kinds)
    )
    if not steers:
        return frozenset(wanted), frozenset()
    floats = _floats(graph, types)
    stored = [
        graph.instructions[i].operands[1]
        for i, kind in enumerate(graph.kinds)
        if kind in (Kind.SHARED_STORE, Kind.GENERIC_STORE) and graph.instructions[i].name == "st"
    ]
    held = {name for operand in stored for name in names_in(operand) if name not in floats}
    want(tuple(held))
    follow()
    each = (operand.items if isinstance(operand, Vector) else (operand,) for operand in stored)
    numbers = {number for operand in each for number in operand if isinstance(number, int)}
    return frozenset(wanted), frozenset(held | numbers)


def _floats(graph: Graph, types: Mapping[str, str]) -> set[str]:
    """Registers whose values come of floating-point numbers or matrices."""
    found = {name for name, kind in types.items() if kind.startswith(("f", "bf"))}
    users: dict[str, list[int]] = {}
    for i, names in enumerate(graph.reads):
        typed = any(part[:1] == "f" or part[:2] == "bf" for part in graph.instructions[i].parts)
        if typed or graph.kinds[i] is Kind.WGMMA:
            found.update(n for n in graph.writes[i] if types.get(n) != "pred")
        for name in names:
            users.setdefault(name, []).append(i)
    work = list(found)
    while work:
        for i in users.get(work.pop(), ()):
            for name in graph.writes[i]:
                if name not in found and types.get(name) != "pred":
                    found.add(name)
                    work.append(name)
    return found
