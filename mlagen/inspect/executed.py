"""What a kernel executes for one more unit of work, such as a tile of keys: from two runs' counts.

The difference of two runs leaves out prologue, epilogue and the first turns of a loop. Blocks that
a branch may skip are told apart, with how often they ran.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mlagen.binary import Instruction
from mlagen.binary.flow import Block, Flow, read_flow
from mlagen.inspect.model import PIPES, Pipe
from mlagen.inspect.pipes import pipe_of

_COUNTER = re.compile(r"(\w+cnt)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class SkippedBlock:
    """A block that a branch skips, or one of two ways: instructions at `first` .. `last` (byte
    offsets), `entered` of `reached` times a unit, and what one execution of it has."""

    first: int
    last: int
    entered: float
    reached: float
    pipes: tuple[tuple[Pipe, int], ...]


@dataclass(frozen=True, slots=True)
class Executed:
    """Mean executions a unit. `waits`: by counters, the operations that each leaves outstanding;
    `slack`: waits of which some counter leaves any."""

    pipes: tuple[tuple[Pipe, float], ...]
    mnemonics: Mapping[str, float]
    waits: Mapping[str, float]
    slack: float
    skipped: tuple[SkippedBlock, ...]

    @property
    def total(self) -> float:
        return sum(count for _, count in self.pipes)

    def __getitem__(self, pipe: Pipe) -> float:
        return dict(self.pipes).get(pipe, 0.0)


def executed_per_unit(
    instructions: tuple[Instruction, ...],
    fewer: Mapping[int, int],
    more: Mapping[int, int],
    units: float,
) -> Executed:
    """What `units` more units of work cost each, by the executions of two runs by byte offset."""
    rate = {ins.offset: (more.get(ins.offset, 0) - fewer.get(ins.offset, 0)) / units
            for ins in instructions}  # fmt: skip
    pipes: dict[Pipe, float] = defaultdict(float)
    mnemonics: dict[str, float] = defaultdict(float)
    waits: dict[str, float] = defaultdict(float)
    slack = 0.0
    for ins in instructions:
        count = rate[ins.offset]
        if not count:
            continue
        pipes[pipe_of(ins)] += count
        mnemonics[ins.mnemonic] += count
        if pipe_of(ins) == "wait":
            counters = _COUNTER.findall(str(ins))
            waits[" ".join(f"{name}({left})" for name, left in counters)] += count
            slack += count * any(int(left) for _, left in counters)
    return Executed(
        tuple((pipe, pipes[pipe]) for pipe in PIPES if pipe in pipes),
        dict(sorted(mnemonics.items(), key=lambda entry: -entry[1])),
        dict(sorted(waits.items())),
        slack,
        tuple(_skipped(read_flow(instructions), rate)),
    )


def _skipped(flow: Flow, rate: Mapping[int, float]) -> list[SkippedBlock]:
    """Blocks behind a branch that goes both ways, or always past them, within the work counted."""
    found = []
    for block in flow.blocks:
        before = [flow.blocks[index] for index in flow.predecessors[block.index]]
        if len(before) != 1 or len(before[0].successors) < 2:
            continue
        others = [flow.blocks[index] for index in before[0].successors if index != block.index]
        if not any(_joins(flow, block, other) for other in others):
            continue
        entered = rate[flow.instructions[block.first].offset]
        reached = rate[flow.instructions[before[0].last].offset]
        if reached > 0:
            found.append(_described(flow, block, entered, reached))
    return found


def _joins(flow: Flow, block: Block, other: Block) -> bool:
    """Whether `other` is where `block` leads: without it the branch would do nothing."""
    return other.index in block.successors and other.index > block.index


def _described(flow: Flow, block: Block, entered: float, reached: float) -> SkippedBlock:
    inside = flow.instructions[block.first : block.last + 1]
    counts: dict[Pipe, int] = defaultdict(int)
    for ins in inside:
        counts[pipe_of(ins)] += 1
    mix = tuple((pipe, counts[pipe]) for pipe in PIPES if pipe in counts)
    return SkippedBlock(inside[0].offset, inside[-1].offset, entered, reached, mix)
