"""The tile loop unrolled for N tiles: prologue and drain are what is left of it at the ends.

Iteration i runs from below 0 to beyond N and every operation whose tile lies outside [0, N) is
dropped. Clusters between the first and the last operation all stay, because their barriers carry
the order; an empty one is a bare barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlagen.dsl import Cluster, Operation
from mlagen.dsl.operation import Step, operations_of, steps_of


@dataclass(frozen=True, slots=True)
class Instance:
    """Cluster `cluster` of iteration `i`, with the steps that exist there."""

    cluster: Cluster
    i: int
    steps: tuple[Step, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        return operations_of(self.steps)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the loop is steady: all operations are there for low <= i < N - high."""

    low: int
    high: int
    first: int  # first iteration with any operation
    last: int  # N + last is the last iteration with any operation
    period: int  # iterations after which slots repeat
    step: int = 1  # tiles a pass: iterations are multiples of it

    @property
    def first_looped(self) -> int:
        """Smallest N whose prologue and drain do not overlap."""
        return max(1, self.low + self.high)


def loop_bounds(loop: Sequence[Cluster], period: int, step: int = 1) -> Bounds:
    """The bounds of a loop by `step` tiles, from its operations' tile offsets."""
    low, high, first, last = [], [], [], []
    for cluster in loop:
        for operation in cluster.operations():
            offset = operation.tile.offset if operation.tile else 0
            first.append(-offset)
            last.append(-offset - 1)
            # Steady code is rendered for a tile that is not the first.
            special = operation.domain in ("first", "rest") or operation.first_differs
            low.append((2 if operation.domain == "second" else int(special)) - offset)
            if operation.domain not in ("first", "second"):  # nor is it that of the last tiles
                high.append(offset + operation.last_tiles)
    up, down = -(-max(low) // step) * step, min(first) // step * step
    return Bounds(up, max(high), down, max(last), period, step)


def stands(operation: Operation, i: int, n: int, edge: Bounds) -> bool:
    """Whether the operation stands in the code of iteration `i`. One of the first tiles also stands
    where a later tile shares their code, and passes it by."""
    if operation.present(i, n):
        return True
    if not operation.first_tiles or n < edge.first_looped or i < edge.low:
        return False
    if i < n - edge.high:
        return operation.present(edge.low + (i - edge.low) % edge.period, n)
    more = (n - edge.first_looped) // edge.period * edge.period
    return operation.present(i - more, n - more)


def expand_loop(loop: Sequence[Cluster], edge: Bounds, n: int) -> list[Instance]:
    """The loop unrolled for `n` tiles, without the empty clusters at either end. In steady passes
    all stay, since these share code."""
    if n < 1:
        return []
    instances: list[Instance] = []
    for i in range(edge.first, n + edge.last + 1, edge.step):
        for cluster in loop:
            steps = steps_of(cluster.steps, partial(stands, i=i, n=n, edge=edge))
            instances.append(Instance(cluster, i, steps))
    filled = [
        index
        for index, instance in enumerate(instances)
        if instance.steps or edge.low <= instance.i < n - edge.high
    ]
    return instances[filled[0] : filled[-1] + 1]
