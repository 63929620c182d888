"""What an expression shows of the values that its unknowns need, whatever the others have.

Hints where to look for a model, no more: `Decisions` takes only values under which the expression
comes out.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.audit.gfx950.lds.expressions import LEAF, Node

_RIGHT = ("s_sub_u32", "s_sub_i32", "v_sub_u32", "v_sub_i32")  # take their second operand away
_LEFT = ("v_subrev_u32", "v_subrev_i32")
_HIGH = ("s_mul_hi_u32", "v_mul_hi_u32")
_MET = ("eq_u32", "eq_i32", "le_u32", "le_i32", "ge_u32", "ge_i32")  # hold where both are equal
_HALVES = 1 << 31  # as a factor whose product's upper half is taken: divides by 2


def needed(condition: Node) -> dict[Node, int]:
    """Values of some leaves under which a condition may come out: a range begins at 0, a factor
    divides by 2, and a number is what it is compared with."""
    return {
        **dict.fromkeys(magic_factors(condition), _HALVES),
        **compared(condition),
        **dict.fromkeys(taken_away(condition), 0),
    }


def taken_away(value: Node) -> frozenset[Node]:
    """The leaves of an expression that stand behind its minus signs alone: the first page of a
    range, beside its last. With them large nothing else has room. What all other operations do to
    a sign is not looked at."""
    added: set[Node] = set()
    taken: set[Node] = set()
    seen: set[tuple[Node, bool]] = set()
    work = [(value, False)]
    while work:
        node, minus = work.pop()
        if (node, minus) in seen:
            continue
        seen.add((node, minus))
        if node.op == LEAF:
            (taken if minus else added).add(node)
            continue
        for place, part in enumerate(node.args):
            if isinstance(part, Node):
                turned = (node.op in _RIGHT and place == 1) or (node.op in _LEFT and place == 0)
                work.append((part, minus != turned))
    return frozenset(taken - added)


def ranges(value: Node) -> list[Node]:
    """The parts of an expression that take one leaf from another: lengths of ranges."""
    return [
        node
        for node in _below(value)
        if node.op in (*_RIGHT, *_LEFT)
        and all(isinstance(part, Node) and part.op == LEAF for part in node.args)
    ]


def magic_factors(value: Node) -> frozenset[Node]:
    """The leaves whose product's upper half is taken: factors that stand for a division."""
    return frozenset(
        part
        for node in _below(value)
        if node.op in _HIGH
        for part in node.args
        if isinstance(part, Node) and part.op == LEAF
    )


def compared(value: Node) -> dict[Node, int]:
    """The leaves that parts of an expression compare with constants, and these: what a kernel
    refuses to run without, as a head count. The expression's own comparison is left out."""
    found: dict[Node, int] = {}
    for node in _below(value):
        if node is not value and node.op in _MET:
            for leaf, constant in (node.args, node.args[::-1]):
                if isinstance(leaf, Node) and leaf.op == LEAF and isinstance(constant, int):
                    found.setdefault(leaf, constant)
    return found


def _below(value: Node) -> Iterator[Node]:
    """An expression and its parts, each once."""
    seen, work = {value}, [value]
    while work:
        node = work.pop()
        yield node
        if node.op != LEAF:
            for part in node.args:  # in their order: the same file gives the same report
                if isinstance(part, Node) and part not in seen:
                    seen.add(part)
                    work.append(part)
