"""Values that code computes from what an audit does not know: hash-consed expressions.

A register holds a number (an int, or an int64 array of 64 lanes) or a `Node`. Equal computations
give the same node, whichever wave or copy of a loop made them: that is what keeps the decisions of
several waves consistent. A node of a vector register stands for its lanes and evaluates to lane 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.division import DIVISION
from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.binary.integers import MASK, RELATIONS, SCALAR, VECTOR, signed

Lanes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`op` of `args` (nodes, ints, or what names a leaf). `leaves`: all leaves under it.
    `serial`: counts the nodes as they are made. `data`: it depends on what LDS or tiles hold.
    `depth`: operations on the way to its furthest leaf."""

    op: str
    args: tuple[Any, ...] = field(repr=False)
    leaves: frozenset[Node] = field(repr=False)
    serial: int
    data: bool = False
    depth: int = 0


Scalar = int | Node
Vector = int | Lanes | Node
Model = dict[Node, int]  # leaf -> its value

WIDE = 32
"""Unknowns beyond which an expression is not evaluated: a mask that a loop narrows by data each
round grows without end. One more stand for all of them."""
_DEEPEST = 300
"""Operations on operations beyond which it is not evaluated either."""
_NODE_STEPS = 10  # a node stays in memory

LEAF, OPAQUE, LANES = "leaf", "opaque", "lanes"
DATA = "data"  # the name of opaque values that LDS or a tile held


def _relation(name: str, kind: str) -> Callable[..., int]:
    relation = RELATIONS[name]
    if kind == "i32":
        return lambda a, b: int(relation(signed(a), signed(b)))
    return lambda a, b: int(relation(a, b))


def _mask(name: str, kind: str) -> Callable[..., int]:
    """Half of what v_cmp gives, if all lanes are like lane 0."""
    holds = _relation(name, kind)
    return lambda a, b: MASK if holds(a, b) else 0


def mask_of(table: int, *masks: int) -> int:
    """A mask of masks: row i of the table is for lanes whose bits in the masks make i."""
    found = 0
    for row in range(1 << len(masks)):
        if table >> row & 1:
            lanes = MASK
            for place, mask in enumerate(masks):
                lanes &= mask if row >> place & 1 else ~mask
            found |= lanes
    return found


def _wide(relation: str) -> Callable[..., int]:
    test = RELATIONS[relation]
    return lambda a, b, c, d: int(test(a | b << 32, c | d << 32))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: integer.function for name, integer in (*VECTOR.items(), *SCALAR.items())},
    **{f"{r}_{k}": _relation(r, k) for r in RELATIONS for k in ("i32", "u32")},
    **{f"v_cmp_{r}_{k}": _mask(r, k) for r in RELATIONS for k in ("i32", "u32")},
    **{f"{r}_u64": _wide(r) for r in RELATIONS},
    "select": lambda condition, a, b: a if condition else b,
    "carry": lambda a, b, c: int(a + b + c > MASK),
    "borrow": lambda a, b, c: int(a - b - c < 0),
    "bit": lambda a, b: a >> (b & 31) & 1,
    "v_cndmask_b32": lambda a, b, mask: b if mask & 1 else a,
    "constant": lambda value: value,
    "mask": mask_of,
    **DIVISION,
}
_SUMS = ("v_add_u32", "v_add_i32", "s_add_u32", "s_add_i32")
_DIFFERENCES = ("v_sub_u32", "v_sub_i32", "s_sub_u32", "s_sub_i32")


class Expressions:
    """Makes nodes, each distinct one once."""

    def __init__(self, budget: Budget, launch: KnownLaunch = NOT_KNOWN) -> None:
        self._known: dict[tuple[Any, ...], Node] = {}
        self._budget, self._launch = budget, launch
        self._many = frozenset(self.leaf("more than can be followed", i) for i in range(WIDE + 1))

    def leaf(self, *name: Any) -> Node:
        """A value from outside; equal names are equal values."""
        return self._node(LEAF, name)

    def argument(self, offset: int) -> Scalar:
        """The dword of the argument segment at a byte offset: a number where the launch tells."""
        known = self._launch.number(offset, 4)
        return self.leaf("kernarg", offset) if known is None else known

    def workgroup(self, axis: int) -> Scalar:
        """The workgroup's place in the grid."""
        grid = self._launch.grid
        return 0 if grid is not None and grid[axis] == 1 else self.leaf("workgroup", axis)

    def opaque(self, name: str, *args: Any) -> Node:
        """A value that code computes in a way that is not evaluated: a leaf of its own."""
        return self._node(OPAQUE, (name, *(self.plain(a) for a in args)))

    def of(self, op: str, *args: Any) -> Scalar:
        """An operation on values of which at least one is a node."""
        if op in _SUMS:
            return self._sum(args[0], args[1], 1)
        if op in _DIFFERENCES and not isinstance(args[1], Node):
            return self._sum(args[0], args[1], -1)
        if op in ("v_mov_b32", "s_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32"):
            return cast(Scalar, args[0])
        return self._node(op, tuple(self.plain(a) for a in args))

    def _sum(self, a: Any, b: Any, sign: int) -> Scalar:
        """Constants are collected, so that a counter after n steps stays one small node."""
        if isinstance(a, int):
            a, b = b, a  # a sum: a difference has a node first
        if isinstance(b, int) and isinstance(a, Node):
            constant = sign * b
            if a.op == "s_add_u32" and isinstance(a.args[1], int):
                a, constant = a.args[0], a.args[1] + constant
            constant &= MASK
            return self._node("s_add_u32", (a, constant)) if constant else a
        if sign < 0:
            return self._node("s_sub_u32", (self.plain(a), self.plain(b)))
        return self._node("s_add_u32", (self.plain(a), self.plain(b)))

    def plain(self, value: Any) -> Any:
        """A vector as a node, so that equal ones are the same; anything else as it is."""
        if isinstance(value, np.ndarray):
            return self._node(LANES, (value.tobytes(), int(value[0])))
        return value

    def _node(self, op: str, args: tuple[Any, ...]) -> Node:
        key = (op, args)
        found = self._known.get(key)
        if found is None:
            self._budget.spend(_NODE_STEPS)
            below = [a for a in args if isinstance(a, Node)]
            data = args[0] == DATA or any(a.data for a in below)
            serial = len(self._known)
            if op in (LEAF, OPAQUE):
                found = Node(op, args, frozenset(), serial, data)
                object.__setattr__(found, "leaves", frozenset((found,)))
            else:
                leaves = frozenset[Node]().union(*(a.leaves for a in below))
                if len(leaves) > WIDE:
                    leaves = self._many
                depth = 1 + max((a.depth for a in below), default=0)
                if depth > _DEEPEST:
                    leaves = self._many
                found = Node(op, args, leaves, serial, data, depth)
            self._known[key] = found
        return found


class Values:
    """The values of nodes under a model. Leaves that it does not name: see `_default`.

    `parent`: values under a model that differs in `leaf` only; what does not depend on the leaf is
    taken from there.
    """

    def __init__(
        self, model: Model, parent: Values | None = None, leaf: Node | None = None
    ) -> None:
        self._model = model
        self._known: dict[Node, int] = {}
        self._parent, self._leaf = parent, leaf

    def of(self, value: int | Node) -> int:
        if isinstance(value, int):
            return value
        known = self._known.get(value)
        if known is not None:
            return known
        if self._parent is not None and self._leaf not in value.leaves:
            return self._parent.of(value)
        if value.op in (LEAF, OPAQUE):
            result = self._model.get(value, _default(value))
        elif value.op == LANES:
            result = int(value.args[1])
        else:
            result = int(_OPERATIONS[value.op](*[self.of(a) for a in value.args])) & MASK
        self._known[value] = result
        return result


def _default(leaf: Node) -> int:
    """Arguments are 1 (sizes, ratios), whatever lies in memory is 0 (starts, indices)."""
    return 0 if leaf.args[0] in ("workgroup", "memory") else 1
