"""Registers of a `.ptx` by the names its schedule gave them, and where they are alive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from mlagen.artifact import RegisterMap
from mlagen.inspect.model import CodeCluster, RegisterBlock, Touch
from mlagen.ptx import Entry, Graph

_DIGITS = "0123456789"


def ptx_blocks(
    entry: Entry, clusters: Sequence[CodeCluster], maps: Sequence[RegisterMap]
) -> tuple[RegisterBlock, ...]:
    """The manifest's register blocks with the clusters they are alive in, in the map's order."""
    names = {regs.name for regs in maps}
    graph = Graph(entry)
    reads = [_blocks(registers, names) for registers in graph.reads]
    writes = [_blocks(registers, names) for registers in graph.writes]
    after = _alive(graph, reads, writes)
    places: dict[int, list[int]] = {}
    for instruction in entry.instructions:
        places.setdefault(instruction.line, []).append(instruction.index)
    result = []
    for regs in maps:
        touched: list[tuple[str, Touch]] = []
        for cluster in clusters:
            at = [index for line in cluster.lines for index in places.get(line.at, ())]
            read = any(regs.name in reads[i] for i in at)
            written = any(regs.name in writes[i] for i in at)
            if read or written:
                touched.append((cluster.id, "both" if read and written else
                                "read" if read else "write"))  # fmt: skip
            elif any(regs.name in after[i] for i in at):
                touched.append((cluster.id, "through"))
        result.append(RegisterBlock(regs.name, regs.file, -1, regs.count, regs.comment,
                                    tuple(touched), declared=True))  # fmt: skip
    return tuple(result)


def _blocks(registers: Iterable[str], names: set[str]) -> frozenset[str]:
    """The blocks that registers are part of: `%o17` is of block `o`. What braces inside the body
    declare (`%o@3`) is of none."""
    return frozenset(name[1:].rstrip(_DIGITS) for name in registers if name[0] == "%") & names


def _alive(
    graph: Graph, reads: Sequence[frozenset[str]], writes: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    """Blocks alive after each instruction. No write ends a block's life: blocks have many
    registers, and one write replaces one of them."""
    reached = _written_before(graph, writes)
    before: list[frozenset[str]] = [frozenset()] * (graph.end + 1)
    alive: list[frozenset[str]] = [frozenset()] * graph.end
    changed = True
    while changed:
        changed = False
        for index in range(graph.end - 1, -1, -1):
            held: frozenset[str] = frozenset().union(*(before[i] for i in graph.successors[index]))
            alive[index] = held
            new = held | reads[index]
            if new != before[index]:
                before[index] = new
                changed = True
    # Only what a write may have filled before can be alive.
    return [held & (seen | made) for held, seen, made in zip(alive, reached, writes, strict=True)]


def _written_before(graph: Graph, writes: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Blocks that some way to each instruction has written."""
    seen: list[frozenset[str]] = [frozenset()] * graph.end
    work = deque(range(graph.end))
    while work:
        index = work.popleft()
        held = seen[index] | writes[index]
        for after in graph.successors[index]:
            if after != graph.end and not held <= seen[after]:
                seen[after] |= held
                work.append(after)
    return seen
