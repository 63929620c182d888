"""The control-flow graph of an entry: successors, post-dominators, and what a branch skips."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from mlagen.ptx.effects import Kind, kind_of, read, written
from mlagen.ptx.syntax import Entry


class Graph:
    """Instruction-level graph; node `len(instructions)` is the common exit."""

    def __init__(self, entry: Entry) -> None:
        self.instructions = entry.instructions
        self.kinds = tuple(kind_of(instruction) for instruction in entry.instructions)
        self.end = len(entry.instructions)
        self.reads = tuple(read(instruction) for instruction in entry.instructions)
        self.writes = tuple(written(instruction) for instruction in entry.instructions)
        self.successors = tuple(self._successors(i) for i in range(self.end))
        self._loops: dict[tuple[int, int], frozenset[int]] = {}

    def _successors(self, index: int) -> tuple[int, ...]:
        instruction, kind = self.instructions[index], self.kinds[index]
        if kind is Kind.BRANCH:
            if instruction.guard is None:
                return (instruction.target,)
            return (index + 1, instruction.target)
        if kind is Kind.TABLE_BRANCH:
            beyond = () if instruction.guard is None else (index + 1,)
            return (*beyond, *dict.fromkeys(instruction.targets))
        if kind in (Kind.EXIT, Kind.TRAP) and instruction.guard is None:
            return (self.end,)
        if kind in (Kind.EXIT, Kind.TRAP):
            return (index + 1, self.end)
        return (index + 1,)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Nodes before each node."""
        found: list[list[int]] = [[] for _ in range(self.end + 1)]
        for index, after in enumerate(self.successors):
            for node in after:
                found[node].append(index)
        return tuple(tuple(nodes) for nodes in found)

    @cached_property
    def reachable(self) -> frozenset[int]:
        """Nodes on a path from the entry."""
        return frozenset(self._reached([0], self.end))

    def _reached(self, start: Iterable[int], stop: int) -> set[int]:
        """Nodes on paths from `start` to `stop` or the end, without these two."""
        seen: set[int] = set()
        work = list(start)
        while work:
            node = work.pop()
            if node not in seen and node not in (stop, self.end):
                seen.add(node)
                work.extend(self.successors[node])
        return seen

    @cached_property
    def post_dominator(self) -> tuple[int, ...]:
        """Immediate post-dominator of each node (Cooper, Harvey, Kennedy 2001)."""
        order: list[int] = []  # post-order of the reversed graph
        seen = {self.end}
        stack = [(self.end, iter(self.predecessors[self.end]))]
        while stack:
            node, before = stack[-1]
            step = next((p for p in before if p not in seen), None)
            if step is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(self.predecessors[step])))
        rank = {node: place for place, node in enumerate(order)}
        found: dict[int, int] = {self.end: self.end}

        def meet(a: int, b: int) -> int:
            while a != b:
                while rank[a] < rank[b]:
                    a = found[a]
                while rank[b] < rank[a]:
                    b = found[b]
            return a

        changed = True
        while changed:
            changed = False
            for node in reversed(order[:-1]):
                known = [s for s in self.successors[node] if s in found]
                if not known:
                    continue
                new = known[0]
                for other in known[1:]:
                    new = meet(new, other)
                if found.get(node) != new:
                    found[node] = new
                    changed = True
        # What never ends (an endless loop) is taken to meet at the end.
        return tuple(found.get(node, self.end) for node in range(self.end + 1))

    def skipped(self, branch: int) -> frozenset[int]:
        """Nodes between a branch and its immediate post-dominator."""
        return frozenset(self._reached(self.successors[branch], self.post_dominator[branch]))

    def region(self, start: int, stop: int) -> frozenset[int]:
        """Nodes on paths from `start` to `stop` or the end, without these two ends."""
        return frozenset(self._reached([start], stop))

    def used_from(self, start: int, register: str) -> bool:
        """Whether some path from `start` reads a register before it writes it."""
        seen: set[int] = set()
        work = [start]
        while work:
            node = work.pop()
            if node in seen or node == self.end:
                continue
            seen.add(node)
            if register in self.reads[node]:
                return True
            if register not in self.writes[node] or self.instructions[node].guard:
                work.extend(self.successors[node])
        return False

    def comes_back(self, branch: int, start: int) -> bool:
        """Whether a path from `start` meets `branch` again before its post-dominator."""
        return branch in self._reached([start], self.post_dominator[branch])

    @cached_property
    def back_edges(self) -> frozenset[tuple[int, int]]:
        """Edges to a node that is still open in a depth-first walk."""
        found: set[tuple[int, int]] = set()
        state: dict[int, int] = {0: 1}
        stack = [(0, iter(self.successors[0] if self.end else ()))]
        while stack:
            node, after = stack[-1]
            step = next(after, None)
            if step is None:
                state[node] = 2
                stack.pop()
            elif state.get(step) == 1:
                found.add((node, step))
            elif step not in state and step != self.end:
                state[step] = 1
                stack.append((step, iter(self.successors[step])))
        return frozenset(found)

    def loop(self, back_edge: tuple[int, int]) -> frozenset[int]:
        """A back edge's natural loop: its head, and what leads to its tail without the head."""
        if back_edge not in self._loops:
            tail, head = back_edge
            found = {head}
            work = [tail]
            while work:
                node = work.pop()
                if node not in found:
                    found.add(node)
                    work.extend(self.predecessors[node])
            self._loops[back_edge] = frozenset(found)
        return self._loops[back_edge]
