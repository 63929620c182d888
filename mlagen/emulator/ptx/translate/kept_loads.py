"""Which rows of a program the order of loads looks at (`order.loads`): loads from shared memory
where copies write it, and what reads or writes a register whose value may come of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents.copies import LOAD, SEND, WORDS
from mlagen.emulator.ptx.memory import memory_rows as z

_SHARED = (z.SHARED_CTA, z.SHARED_CLUSTER, z.GENERIC)


# Rows that only compute: ptxas moves them behind a release where nothing needs them before it.
_COMPUTE = frozenset(
    (
        y.X_INTEGER, y.X_FLOAT, y.X_HALF, y.X_CONVERT, y.X_SELECT, y.X_MOVE, y.X_APPROX, y.X_MMA,
        y.X_COLLECTIVE,
    )
)  # fmt: skip


def mark_loads(rows: Sequence[list[int]], lists: Sequence[int]) -> bool:
    """Set MARK_LOADS, MARK_USES and MARK_CARRIES; whether there are any. None are where nothing
    writes shared memory through the async proxy."""
    loads = [row for row in rows if _loads(row)]
    if not loads or not any(_copies(row) for row in rows):
        return False
    for row in loads:
        row[y.P_MARKS] |= y.MARK_LOADS
    watched = _watched(rows, loads, lists)
    for row in rows:
        names = _named(row, lists, y.P_READS) + _named(row, lists, y.P_WRITES)
        if not watched.isdisjoint(names):
            row[y.P_MARKS] |= y.MARK_CARRIES if _computes(row) else y.MARK_USES
    return True


def _watched(
    rows: Sequence[list[int]], loads: Sequence[list[int]], lists: Sequence[int]
) -> set[int]:
    """Registers whose values may come of loads."""
    made: dict[int, set[int]] = {}  # by a register, what is computed from it
    for row in rows:
        if _computes(row):
            for name in _named(row, lists, y.P_READS):
                made.setdefault(name, set()).update(_named(row, lists, y.P_WRITES))
    found = {name for row in loads for name in _named(row, lists, y.P_WRITES)}
    work = list(found)
    while work:
        more = made.get(work.pop(), set()) - found
        found |= more
        work += more
    return found


def _computes(row: Sequence[int]) -> bool:
    matrix = row[y.P_CLASS] == y.X_MATRIX_MOVE and row[y.P_OP] == z.MOVMATRIX
    return matrix or row[y.P_CLASS] in _COMPUTE


def _copies(row: Sequence[int]) -> bool:
    kind, op = row[y.P_CLASS], row[y.P_OP]
    return kind == y.X_TENSOR_COPY or (kind == y.X_COPY and op in (LOAD, SEND, WORDS))


def _loads(row: Sequence[int]) -> bool:
    kind = row[y.P_CLASS]
    matrix = kind == y.X_MATRIX_MOVE and row[y.P_OP] == z.LDMATRIX
    return (matrix or kind == y.X_LOAD) and row[y.P_TYPE] in _SHARED


def _named(row: Sequence[int], lists: Sequence[int], at: int) -> list[int]:
    """Registers that a row reads or writes: P_READS or P_WRITES, behind which is their count."""
    return list(lists[row[at] : row[at] + row[at + 1]])
