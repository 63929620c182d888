"""Control flow of decoded code: basic blocks and loops."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from mlagen.binary.instruction import INDIRECT, LEAVES, MachineInstruction
from mlagen.errors import UnsupportedError

_DEEPEST = 16  # loops around one another


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions `first` .. `last` (indices) that always execute together."""

    index: int
    first: int
    last: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowLoop:
    """Blocks that reach one another. `head`: the first that is entered from outside, `entries`: all
    of them. `parent`: index of the loop around it."""

    head: int
    body: frozenset[int]
    parent: int | None
    entries: tuple[int, ...]


@dataclass(frozen=True)
class Flow:
    """The control flow graph of one kernel; block 0 is its entry."""

    instructions: tuple[MachineInstruction, ...]
    blocks: tuple[BasicBlock, ...]
    indirect: tuple[int, ...]  # offsets of jumps whose targets are not in the code

    @cached_property
    def block_at(self) -> dict[int, int]:
        """Index of the block that starts at an instruction index."""
        return {block.first: block.index for block in self.blocks}

    @cached_property
    def block_of(self) -> dict[int, int]:
        """Index of the block that starts at a byte offset."""
        return {self.instructions[b.first].offset: b.index for b in self.blocks}

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.blocks]
        for block in self.blocks:
            for after in block.successors:
                found[after].append(block.index)
        return tuple(tuple(before) for before in found)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Reachable blocks in reverse postorder."""
        seen, result = {0}, []
        work: list[tuple[int, int]] = [(0, 0)]
        while work:
            block, next_edge = work.pop()
            after = self.blocks[block].successors
            if next_edge < len(after):
                work.append((block, next_edge + 1))
                if after[next_edge] not in seen:
                    seen.add(after[next_edge])
                    work.append((after[next_edge], 0))
            else:
                result.append(block)
        return tuple(reversed(result))

    @cached_property
    def loops(self) -> tuple[FlowLoop, ...]:
        """All loops, outer ones first: cycles of the graph, then the cycles that remain inside each
        when the jumps back to its head are taken away. Also finds loops with several entries.
        UnsupportedError where they are nested deeper than any written code."""
        found: list[FlowLoop] = []
        work: deque[tuple[frozenset[int], int | None, int]] = deque()
        work.append((frozenset(self.order), None, 0))
        cut: set[int] = set()  # heads whose incoming edges are taken away
        while work:
            inside, parent, depth = work.popleft()
            if depth > _DEEPEST:  # each level is another pass over the code
                raise UnsupportedError(
                    f"the code's loops are nested over {_DEEPEST} deep: it is not taken apart"
                )
            for body in self._cycles(inside, cut):
                outside = [
                    block
                    for block in sorted(body)
                    if block == 0 or any(b not in body for b in self.predecessors[block])
                ]
                head = outside[0]
                found.append(FlowLoop(head, body, parent, tuple(outside)))
                cut.add(head)
                work.append((body, len(found) - 1, depth + 1))
        return tuple(found)

    def _cycles(self, inside: frozenset[int], cut: set[int]) -> list[frozenset[int]]:
        """Strongly connected components with an edge, by position. Source: Tarjan 1972."""
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        held: set[int] = set()  # what the stack holds
        found = []

        def after(block: int) -> list[int]:
            return [s for s in self.blocks[block].successors if s in inside and s not in cut]

        for start in sorted(inside):
            if start in number:
                continue
            work = [(start, iter(after(start)))]
            number[start] = low[start] = len(number)
            stack.append(start)
            held.add(start)
            while work:
                block, rest = work[-1]
                following = next(rest, None)
                if following is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[block])
                    if low[block] == number[block]:
                        members = [stack.pop()]
                        while members[-1] != block:
                            members.append(stack.pop())
                        body = frozenset(members)
                        held -= body
                        if len(body) > 1 or block in after(block):
                            found.append(body)
                elif following not in number:
                    number[following] = low[following] = len(number)
                    stack.append(following)
                    held.add(following)
                    work.append((following, iter(after(following))))
                elif following in held:
                    low[block] = min(low[block], number[following])
        return sorted(found, key=min)

    @cached_property
    def innermost(self) -> dict[int, int]:
        """The innermost loop (index in `loops`) of each block that is in one."""
        held: dict[int, int] = {}
        for index, loop in enumerate(self.loops):  # outer loops come first
            held.update(dict.fromkeys(loop.body, index))
        return held


def read_flow(instructions: tuple[MachineInstruction, ...]) -> Flow:
    """The flow of a kernel's reachable instructions, which start at its entry."""
    index_of = {ins.offset: index for index, ins in enumerate(instructions)}
    starts = {0}
    for index, ins in enumerate(instructions):
        if ins.branch_target is not None:
            starts.add(index_of[ins.branch_target])
        cut = ins.branch_target is not None or ins.mnemonic in (*LEAVES, *INDIRECT)
        gap = index + 1 < len(instructions) and (
            ins.offset + ins.size != instructions[index + 1].offset
        )
        if (cut or gap) and index + 1 < len(instructions):
            starts.add(index + 1)
    order = sorted(starts)
    block_at = {first: number for number, first in enumerate(order)}
    blocks, indirect = [], []
    for number, first in enumerate(order):
        last = (order[number + 1] if number + 1 < len(order) else len(instructions)) - 1
        ins = instructions[last]
        after = []
        if ins.mnemonic in INDIRECT:
            indirect.append(ins.offset)
        elif ins.mnemonic not in LEAVES and last + 1 in block_at:
            after.append(block_at[last + 1])
        if ins.branch_target is not None:
            target = block_at[index_of[ins.branch_target]]
            if target not in after:
                after.append(target)
        blocks.append(BasicBlock(number, first, last, tuple(after)))
    return Flow(instructions, tuple(blocks), tuple(indirect))
