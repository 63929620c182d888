"""Which paths are followed: a few loop counts, and every edge of the flow if it can be had."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from mlagen.audit.gfx950.lds.decisions import Decisions
from mlagen.audit.gfx950.lds.expressions import Node
from mlagen.audit.gfx950.lds.lds_program import LdsProgram
from mlagen.audit.gfx950.lds.wave import Wave, new_wave

_COUNTS = (2, 1, 3, 4, 0, 5)
"""How often loops go round, over the runs: rings of up to four buffers come round again."""
_COVERING = 3
"""Runs from this one on turn where nobody went before, the sooner the better."""


@dataclass
class Run:
    """All waves of a workgroup along paths that one set of values takes."""

    waves: list[Wave]
    decisions: Decisions
    asked: list[frozenset[Node]]  # by wave: the conditions it met
    stopped: str = ""


@dataclass
class Explorer:
    """Follows waves; `edges` counts how often each edge was taken, over all runs.

    Raises OutOfSteps where the program's budget is spent.
    """

    program: LdsProgram
    waves: int
    block: tuple[int, int, int]
    max_steps: int
    edges: Counter[tuple[int, int]] = field(default_factory=Counter)
    reached: set[int] = field(default_factory=set)
    _taken: int = 0  # `edges` as bits
    _lots: random.Random = field(default_factory=random.Random)
    _drawn: set[tuple[Node, bool]] = field(default_factory=set)

    def run(self, number: int) -> Run:
        """Follow every wave once; `number` varies the loop counts."""
        program = self.program
        decisions = Decisions(
            program.budget,
            number % 2 == 1,
            program.launch.grid,
            program.kernel.argument_name,
            self._drawn,
        )
        program.enlarged = False
        result = Run([], decisions, [])
        self._lots.seed(number)
        for wave in range(self.waves):
            state = new_wave(
                wave, self.block, program.entry_scalars(), program.expressions, program.budget
            )
            asked: set[Node] = set()
            ended = self._follow(state, decisions, asked, number)
            result.waves.append(state)
            result.asked.append(frozenset(asked))
            if not ended:
                result.stopped = f"wave {wave} did not end within {self.max_steps} steps"
                break
        return result

    def missed(self) -> list[int]:
        """Blocks that matter to LDS and that no path got to."""
        program = self.program
        return [
            at for at in program.flow.order if at not in self.reached and at not in program.silent
        ]

    def _follow(self, w: Wave, decisions: Decisions, asked: set[Node], number: int) -> bool:
        program, flow = self.program, self.program.flow
        rounds: dict[int, int] = {}  # loop -> decisions to stay in it since it was entered
        at = 0
        passed = 0
        while passed < self.max_steps:
            passed += len(program.blocks[at]) + 1
            program.budget.spend(len(program.blocks[at]) + 1)
            self.reached.add(at)
            w.path.append(at)
            for step in program.blocks[at]:
                step(w)
            after = self._next(w, at, decisions, asked, number, rounds)
            if after is None:
                w.finish()
                return True
            self.edges[at, after] += 1
            self._taken |= 1 << program.edge_number[at, after]
            for index in list(rounds):
                if after not in flow.loops[index].body:
                    del rounds[index]
            at = after
        return False

    def _next(
        self,
        w: Wave,
        at: int,
        decisions: Decisions,
        asked: set[Node],
        number: int,
        rounds: dict[int, int],
    ) -> int | None:
        flow = self.program.flow
        block = flow.blocks[at]
        if not block.successors:
            return None
        ins = flow.instructions[block.last]
        if ins.branch_target is None or ins.mnemonic == "s_branch" or len(block.successors) == 1:
            return block.successors[0]
        target, through = flow.block_of[ins.branch_target], flow.block_at[block.last + 1]
        condition = self.program.condition(w, ins)
        if isinstance(condition, int):
            return target if condition else through
        asked.add(condition)
        want = self._want(at, target, through, number, rounds)
        inverted = self.program.inverted(ins)
        taken = decisions.decide(condition, want != inverted) != inverted
        self.program.enlarged = decisions.enlarged
        after = target if taken else through
        loop = self._leaving(at, target, through)
        if loop is not None and after in flow.loops[loop].body:
            rounds[loop] = rounds.get(loop, 0) + 1
        return after

    def _leaving(self, at: int, target: int, through: int) -> int | None:
        """The loop that one of the two ways leaves and the other does not."""
        loops = self.program.flow.loops
        loop = self.program.flow.innermost.get(at)
        while loop is not None:
            inside = [way in loops[loop].body for way in (target, through)]
            if inside[0] != inside[1]:
                return loop
            loop = loops[loop].parent
        return None

    def _want(
        self, at: int, target: int, through: int, number: int, rounds: dict[int, int]
    ) -> bool:
        """Whether the branch is better taken."""
        loops = self.program.flow.loops
        loop = self._leaving(at, target, through)
        if loop is not None:
            stay = rounds.get(loop, 0) < self._rounds(loop, number)
            out = through if target in loops[loop].body else target
            if number >= _COVERING and rounds.get(loop, 0) and (at, out) not in self.edges:
                stay = False  # copies of a loop's body are each left by a way of their own
            return (target in loops[loop].body) == stay
        first = [(at, way) not in self.edges for way in (target, through)]
        if number >= _COVERING and first[0] != first[1]:
            return first[0]
        if number == 2:
            return self.edges[at, target] < self.edges[at, through]
        if number >= _COVERING and number % 3:
            # What attracts the other runs may be out of reach for good: draw lots.
            ahead = [self.program.edges_from[way].bit_count() + 1 for way in (target, through)]
            return self._lots.random() * sum(ahead) < ahead[0]
        news = [self._news(at, way) for way in (target, through)]
        if news[0] != news[1]:
            return news[0] > news[1]
        return self.program.to_end[target] > self.program.to_end[through]

    def _news(self, at: int, way: int) -> int:
        """How many edges that no path took yet can follow."""
        fresh = self.program.edges_from[way] & ~self._taken
        return fresh.bit_count() + ((at, way) not in self.edges)

    def _rounds(self, loop: int, number: int) -> int:
        loops = self.program.flow.loops
        if any(other.parent == loop for other in loops):
            return 1 + (number % 2 == 0)  # work after work finds LDS as the first left it
        return _COUNTS[(number * (1 + loop % 2) + loop) % len(_COUNTS)]
