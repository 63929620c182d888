"""Lane masks as functions of the masks that they are made of, so that equal ones are one node.

Compilers turn lanes off and on again: `exec & m`, then `exec ^ m`, then the union of both, which is
the mask from before. Half a mask is kept as a truth table over at most a few others, each of which
it depends on; all lanes, no lane and a mask by itself are what they are.
"""

from __future__ import annotations

from collections.abc import Callable

from mlagen.audit.gfx950.lds.expressions import Expressions, Node, Scalar
from mlagen.binary.integers import MASK

_MOST = 5  # masks that one is made of, as a table of 32 rows has them; of more, an expression
MADE = "mask"  # of a table and the masks that it is over

BITWISE: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "andn1": lambda a, b: ~a & b & MASK,
    "andn2": lambda a, b: a & ~b & MASK,
    "nand": lambda a, b: ~(a & b) & MASK,
    "nor": lambda a, b: ~(a | b) & MASK,
    "or": lambda a, b: a | b,
    "orn1": lambda a, b: (~a | b) & MASK,
    "orn2": lambda a, b: (a | ~b) & MASK,
    "xnor": lambda a, b: ~(a ^ b) & MASK,
    "xor": lambda a, b: a ^ b,
}
"""Operations on masks, by the names of scalar instructions."""


def combined(expressions: Expressions, operation: str, a: Scalar, b: Scalar) -> Scalar:
    """The half of a mask that `operation` makes of two."""
    if isinstance(a, int) and isinstance(b, int):
        return BITWISE[operation](a, b)
    parts = [_taken_apart(expressions, one) for one in (a, b)]
    masks = sorted({mask for own, _ in parts for mask in own}, key=lambda node: node.serial)
    if len(masks) > _MOST:
        return expressions.of(f"s_{operation}_b32", a, b)
    first, second = (_spread(own, table, masks) for own, table in parts)
    return _node(expressions, masks, BITWISE[operation](first, second))


def _taken_apart(expressions: Expressions, mask: Scalar) -> tuple[tuple[Node, ...], int]:
    """What a mask is made of, and the table, of one row for all lanes or none."""
    if mask in (0, MASK):
        return (), 1 if mask else 0
    if isinstance(mask, int):
        constant = expressions.of("constant", mask)
        assert isinstance(constant, Node)
        return (constant,), 0b10
    if mask.op == MADE:
        return mask.args[1:], mask.args[0]
    return (mask,), 0b10


def _spread(own: tuple[Node, ...], table: int, masks: list[Node]) -> int:
    """A table over more masks."""
    places = [masks.index(mask) for mask in own]
    found = 0
    for row in range(1 << len(masks)):
        at = sum((row >> place & 1) << number for number, place in enumerate(places))
        found |= (table >> at & 1) << row
    return found


def _node(expressions: Expressions, masks: list[Node], table: int) -> Scalar:
    for place in reversed(range(len(masks))):
        without = [row for row in range(1 << len(masks)) if not row >> place & 1]
        if all((table >> row ^ table >> (row | 1 << place)) & 1 == 0 for row in without):
            masks = masks[:place] + masks[place + 1 :]
            table = sum((table >> row & 1) << number for number, row in enumerate(without))
    table &= (1 << (1 << len(masks))) - 1
    if not masks:
        return MASK if table else 0
    if len(masks) == 1 and table == 0b10:
        only = masks[0]
        return only.args[0] if only.op == "constant" else only
    return expressions.of(MADE, table, *masks)
