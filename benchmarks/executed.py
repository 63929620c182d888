"""What a kernel executes for one more unit of work, such as a tile of keys: from two runs' counts.

The difference of two runs leaves out prologue, epilogue and the first turns of a loop. Code that a
branch may skip is told apart, with how often it ran.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mlagen.binary import MachineInstruction
from mlagen.binary.flow import BasicBlock, Flow, read_flow
from mlagen.inspect.model import PIPES, Pipe
from mlagen.inspect.pipes import pipe_of

_COUNTER = re.compile(r"(\w+cnt)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class SkippedCode:
    """Straight code that a branch skips: `entered` of the `reached` times a unit that the branch is
    met. `places`: first and last byte offsets of its copies, such as those of an unrolled loop.
    `pipes`, `mnemonics`: what one execution has."""

    places: tuple[tuple[int, int], ...]
    entered: float
    reached: float
    pipes: tuple[tuple[Pipe, int], ...]
    mnemonics: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Executed:
    """Mean executions a unit. `waits`: by counters, the operations that each leaves outstanding;
    `slack`: waits of which some counter leaves any."""

    pipes: tuple[tuple[Pipe, float], ...]
    mnemonics: Mapping[str, float]
    waits: Mapping[str, float]
    slack: float
    skipped: tuple[SkippedCode, ...]

    @property
    def total(self) -> float:
        """All instructions."""
        return sum(count for _, count in self.pipes)

    @property
    def always(self) -> dict[Pipe, float]:
        """By pipe, without what branches may skip."""
        left = dict(self.pipes)
        for code in self.skipped:
            for pipe, count in code.pipes:
                left[pipe] = left.get(pipe, 0.0) - code.entered * count
        return left


def executed_per_unit(
    instructions: tuple[MachineInstruction, ...],
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


def _skipped(flow: Flow, rate: Mapping[int, float]) -> list[SkippedCode]:
    """Blocks that one branch either enters or skips, copies of the same instructions together."""
    copies: dict[tuple[tuple[str, int], ...], list[tuple[BasicBlock, BasicBlock]]] = defaultdict(
        list
    )
    for block in flow.blocks:
        before = [flow.blocks[index] for index in flow.predecessors[block.index]]
        if len(before) != 1 or not set(before[0].successors) & set(block.successors):
            continue
        if rate[flow.instructions[before[0].last].offset]:
            names = Counter(ins.mnemonic for ins in _of(flow, block))
            copies[tuple(names.most_common())].append((block, before[0]))
    return [_described(flow, names, found, rate) for names, found in copies.items()]


def _described(
    flow: Flow,
    names: tuple[tuple[str, int], ...],
    found: list[tuple[BasicBlock, BasicBlock]],
    rate: Mapping[int, float],
) -> SkippedCode:
    blocks = [_of(flow, block) for block, _ in found]
    counts = Counter(pipe_of(ins) for ins in blocks[0])
    return SkippedCode(
        tuple((block[0].offset, block[-1].offset) for block in blocks),
        sum(rate[block[0].offset] for block in blocks),
        sum(rate[_of(flow, before)[-1].offset] for _, before in found),
        tuple((pipe, counts[pipe]) for pipe in PIPES if pipe in counts),
        names,
    )


def _of(flow: Flow, block: BasicBlock) -> tuple[MachineInstruction, ...]:
    return flow.instructions[block.first : block.last + 1]
