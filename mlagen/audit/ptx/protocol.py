"""The instructions that threads agree with each other by, and the registers that steer them."""

from __future__ import annotations

from mlagen.ptx import Graph, Kind

# Kinds that the protocol between threads is made of: a branch around none of these decides nothing.
PROTOCOL = frozenset(Kind) - {Kind.PLAIN, Kind.BRANCH, Kind.COLLECTIVE}


def relevant(graph: Graph) -> frozenset[str]:
    """Registers that reach an operand of the protocol or a branch's predicate (a slice that
    ignores order). Everything else is arithmetic of the kernel's own business."""
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
    while work:
        for index in producers.get(work.pop(), ()):
            if graph.kinds[index] is not Kind.WGMMA:
                want(graph.reads[index])
    return frozenset(wanted)
