"""Runs of a role: the passes of its loop over one item, or over several of a persistent block.

A *place* is a tile's number among all tiles of a block. An item begins with a new pass, so after an
item with an odd number of tiles one place stays empty. In the last pass of an item the first tiles
of the next one stand where tiles past its end would be: they are fetched *ahead*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

from mlagen.codegen.expand import Bounds, Instance, expand_loop
from mlagen.dsl import Cluster, Operation
from mlagen.targets.nvidia.dsl.pipeline import Persistent, Stream

# Sections outside the passes of the loop.
AROUND = ("start", "item", "empty", "end", "leave")
SPAN = 4  # tile counts beyond the first looped one over which group waits are derived


@dataclass(frozen=True)
class Loop:
    """A stream with its derived operations in place."""

    stream: Stream
    prologue: tuple[Operation, ...]
    cluster: Cluster
    epilogue: tuple[Operation, ...]
    edge: Bounds
    # (section, operation index) -> wgmma.wait_group before it; the index after the last operation
    # stands for the end of the pass.
    groups: dict[tuple[str, int], int]
    final: int | None  # wait_group before the epilogue, None where nothing is in flight
    persistent: Persistent = ""
    leaving: tuple[Operation, ...] = ()  # once a block, after its last item
    bound: frozenset[int] = frozenset()  # operations, by id, that needed a group wait

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Those of a pass."""
        return self.cluster.operations()

    @cached_property
    def passes(self) -> dict[tuple[int, int, int], list[tuple[Operation, int]]]:
        """Passes of items (`_items`) by tile, tiles of the item and of the next one."""
        return {}


@dataclass(frozen=True)
class ItemRun:
    """Items of `counts` tiles that a block does one after another, `step` tiles a pass."""

    counts: tuple[int, ...]
    step: int

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The place of each item's first tile."""
        whole = (-(-count // self.step) * self.step for count in self.counts)
        return tuple(accumulate(whole, initial=0))[: len(self.counts)]

    @cached_property
    def items(self) -> dict[int, int]:
        """The item of each place that a tile has."""
        return {
            start + tile: item
            for item, (start, count) in enumerate(zip(self.starts, self.counts, strict=True))
            for tile in range(count)
        }

    def turn(self, place: int, depth: int) -> int:
        """How many tiles have had the slot of `place` before, in a ring of `depth`."""
        if depth not in self._turns:
            held, self._turns[depth] = [0] * depth, {}
            for other in sorted(self.items):
                self._turns[depth][other] = held[other % depth]
                held[other % depth] += 1
        return self._turns[depth][place]

    def before(self, place: int, depth: int) -> int | None:
        """The tile that had the slot of `place` last."""
        return next((p for p in range(place - depth, -1, -depth) if p in self.items), None)

    @cached_property
    def _turns(self) -> dict[int, dict[int, int]]:
        """`turn` of all places, by depth, once it was asked for."""
        return {}

    def loads(self, item: int) -> int:
        """Items before `item` that have tiles: how often what is resident was filled."""
        return sum(1 for count in self.counts[:item] if count)

    def __str__(self) -> str:
        if len(self.counts) == 1:
            return f"N = {self.counts[0]}"
        return "items of " + ", ".join(map(str, self.counts)) + " tiles"


@dataclass(frozen=True, slots=True)
class Pass:
    """Operations of one pass with the places of their tiles, or of what is around the loop, with
    the item's first place. `section`: which printed code it is: "start", "fetch", "item", "empty"
    (a barrier of all roles), "head", those of `section()`, "end", or "leave"."""

    section: str
    item: int
    steps: tuple[tuple[Operation, int], ...]


def left_early(loop: Loop) -> bool:
    """Whether runs leave the loop in the middle of a pass: the first one that lacks tiles has all
    of its own, so it is the loop's up to the last operation of these. Never where a pass has none
    for its own tiles, or some for a run's last ones alone."""
    step, operations = loop.edge.step, loop.operations
    own = any(offset(op) < step for op in operations)
    return loop.edge.high == 2 * step - 1 and own and not any(op.last_tiles for op in operations)


def straight(loop: Loop, n: int) -> bool:
    """Whether a run of `n` tiles has code of its own, without a loop."""
    edge = loop.edge
    return n < (edge.low + edge.step if left_early(loop) else edge.first_looped)


def section(loop: Loop, i: int, n: int) -> str:
    """Which printed section iteration `i` of `n` tiles lies in, or its second part (`parts`)."""
    edge = loop.edge
    if straight(loop, n):
        return f"N = {n}, i = {i}"
    if i < edge.low:
        return f"prologue, i = {i}"
    if i < n - edge.high:
        return "loop"
    return f"drain, i = N{i - n:+d}" if i != n else "drain, i = N"


def parts(loop: Loop, instance: Instance, n: int) -> list[tuple[str, tuple[Operation, ...]]]:
    """The printed sections of a pass of a run of `n` tiles, and what it does in each."""
    edge, i, operations = loop.edge, instance.i, instance.operations
    where = section(loop, i, n)
    lacking = i >= edge.low and n - edge.high <= i <= n - edge.step  # only tiles of the next pass
    if not left_early(loop) or not lacking or straight(loop, n):
        return [(where, operations)]
    held = common(loop)
    first = tuple(op for op in operations if id(op) in held)
    rest = operations[len(first) :]
    # The second part ends the pass for the one after it, even where it is empty itself.
    ends = bool(rest) or i + loop.edge.step < n
    return [("loop", first), (where, rest)] if ends else [("loop", first)]


def common(loop: Loop) -> frozenset[int]:
    """Operations of a pass, by id, up to the last one for one of its own tiles."""
    operations = loop.operations
    last = max(index for index, op in enumerate(operations) if offset(op) < loop.edge.step)
    return frozenset(id(op) for op in operations[: last + 1])


def item_section(edge: Bounds, i: int, n: int) -> str:
    """The same where a block does several items: `Pass.section`."""
    if i < 0:
        return "head"
    if i < n - edge.high:
        return "loop"
    return f"drain, i = N{i - n:+d}"


def offset(operation: Operation) -> int:
    """The operation's tile, relative to the loop variable."""
    return operation.tile.offset if operation.tile else 0


def walk(loop: Loop, counts: Sequence[int]) -> Iterator[Pass]:
    """What a role does over items of `counts` tiles; one item, unless blocks are persistent."""
    line = ItemRun(tuple(counts), loop.edge.step)
    yield Pass("start", 0, tuple((op, 0) for op in loop.prologue))
    if loop.persistent == "ahead":
        yield from _items(loop, line)
        return
    for item, (start, n) in enumerate(zip(line.starts, line.counts, strict=True)):
        if loop.persistent:
            yield Pass("item", item, tuple((op, start) for op in loop.stream.items))
        for instance in expand_loop([loop.cluster], loop.edge, n):
            at = start + instance.i
            for where, operations in parts(loop, instance, n):
                yield Pass(where, item, tuple((op, at + offset(op)) for op in operations))
        yield Pass("end", item, tuple((op, start) for op in loop.epilogue))
    if loop.persistent:
        yield Pass("leave", len(counts) - 1, tuple((op, 0) for op in loop.leaving))


def _items(loop: Loop, line: ItemRun) -> Iterator[Pass]:
    for item, (start, n) in enumerate(zip(line.starts, line.counts, strict=True)):
        if item == 0 or not line.counts[item - 1]:
            steps = fetch_pass(loop, n)
            yield Pass("fetch", item, tuple((op, start + tile) for op, tile in steps))
        yield Pass("item", item, tuple((op, start) for op in loop.stream.items))
        if not n:
            yield Pass("empty", item, ())
        after = line.counts[item + 1] if item + 1 < len(line.counts) else 0
        for i in range(-loop.edge.step if n else 0, n, loop.edge.step):
            key = (i, n, after if i + loop.edge.step >= n else 0)  # the last pass looks ahead
            if key not in loop.passes:
                loop.passes[key] = head_pass(loop, n) if i < 0 else main_pass(loop, i, n, after)
            where = item_section(loop.edge, i, n)
            yield Pass(where, item, tuple((op, start + tile) for op, tile in loop.passes[key]))
        yield Pass("end", item, tuple((op, start) for op in loop.epilogue))


# ---- passes of a persistent block: operations and tiles, counted from the item's first -----------


def fetch_pass(loop: Loop, n: int) -> list[tuple[Operation, int]]:
    """What is ahead of an item that no pass came before."""
    steps = [(op, offset(op) - loop.edge.step) for op in loop.operations if op.ahead]
    return [(op, tile) for op, tile in steps if _coming(op, tile, n)]


def head_pass(loop: Loop, n: int) -> list[tuple[Operation, int]]:
    """The rest of the pass before an item's first one."""
    i = -loop.edge.step
    return [
        (op, i + offset(op)) for op in loop.operations
        if not op.ahead and op.present(i, n)
    ]  # fmt: skip


def main_pass(loop: Loop, i: int, n: int, after: int) -> list[tuple[Operation, int]]:
    """The pass of the tiles from `i` on of an item of `n`, with what is ahead of the next one's
    `after`, at the tiles that it is in place of."""
    first = -(-n // loop.edge.step) * loop.edge.step
    return [
        (op, i + offset(op)) for op in loop.operations
        if op.present(i, n) or (op.ahead and _coming(op, i + offset(op) - first, after))
    ]  # fmt: skip


def _coming(op: Operation, tile: int, n: int) -> bool:
    """Whether it is ahead of tile `tile` of an item of `n`. What seeks the item does so even if it
    has no tile or is not there."""
    return op.present(tile - offset(op), max(n, 1) if op.ahead == "seeks" else n)


# ---- which runs stand for all --------------------------------------------------------------------


def spans(loop: Loop) -> list[tuple[int, ...]]:
    """Runs that pass each printed section of a loop after each that can come before it."""
    if not loop.persistent:
        return [(n,) for n in range(1, loop.edge.first_looped + SPAN * loop.edge.step)]
    return item_runs(loop.edge.high, loop.edge.step, quick=False)


def item_runs(high: int, step: int, *, quick: bool) -> list[tuple[int, ...]]:
    """Runs over items in which every count of tiles, up to `step` passes of the loop, follows every
    other, and every short one every two of those. `quick`: fewer."""
    few, many = range(high + 1), range(high + 2 * step)
    if quick:
        return [every(range(high + step), 2)]
    return [*((n,) for n in many), every(many, 2), every(few, 3)]


def apart_runs(longest: int, deepest: int, *, quick: bool) -> list[tuple[int, ...]]:
    """Runs over items of roles that go apart: every count of tiles up to `longest` follows every
    other, and short ones every few of those; and items of one tile, more than twice around the
    `deepest` ring. `quick`: fewer."""
    pairs, ones = every(range(1, longest + 1), 2), (1,) * (2 * deepest + 2)
    return [pairs] if quick else [pairs, every(range(1, 4), 3), every(range(1, 3), 4), ones]


@cache
def every(symbols: range, length: int) -> tuple[int, ...]:
    """A row in which each sequence of `length` symbols occurs, once (de Bruijn): a walk over all
    shorter ones that takes each way out of each of them once."""
    if length == 1:
        return tuple(symbols)
    left: dict[tuple[int, ...], list[int]] = {}
    row: list[int] = []
    start = (symbols[0],) * (length - 1)
    stack = [start]
    while stack:  # Hierholzer's circuit, written backwards
        at = stack[-1]
        ways = left.setdefault(at, list(symbols))
        if ways:
            stack.append((*at, ways.pop())[1:])
        else:
            row.append(stack.pop()[-1])
    return (*start[1:], *reversed(row))
