"""Wait states: pairs of instructions that stand too close on some path.

This is a dataflow over the code. The state holds the recent instructions whose results, or
operands, still need distance, with the fewest wait states that have passed since on any path. The
rules are those of `mlagen.binary.hazards`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.fixpoint import follow
from mlagen.audit.gfx950.steps import Classed, Step
from mlagen.binary.effects import is_matrix
from mlagen.binary.flow import Flow
from mlagen.binary.hazards import (
    REQUIRED,
    by_letter,
    forwarded,
    in_line,
    packs_beside,
    passes_of,
)
from mlagen.binary.instruction import MachineInstruction

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Recent:
    """`passed`: wait states since; `made`, `held`: the registers that still hold its result, or
    that still must not be overwritten. `spent`: wait states since, where a matrix instruction is
    held back as long as the matrix pipe is `busy`. `between`: one has followed."""

    passed: int
    made: int
    held: int
    spent: int = 0
    busy: int = 0
    between: bool = False


@dataclass(frozen=True, slots=True)
class TooClose:
    """`need` wait states must lie between `producer` and `consumer` (indices); `have` do on the
    worst path. `pair`: the classes that the rule speaks of. `held_back`: one of them waits for the
    matrix pipe for long enough, as matrix instructions between the two keep it busy. `between`: the
    instructions between them, where they stand in one line. `beside`: they write two parts of one
    register, as shipped kernels do (`packs_beside`)."""

    producer: int
    consumer: int
    mask: int
    need: int
    have: int
    pair: Pair
    held_back: bool = False
    between: tuple[MachineInstruction, ...] = ()
    beside: bool = False

    @property
    def by_letter(self) -> bool:
        """Nothing speaks for it but a table: shipped code runs so, or the pipe is busy."""
        held = self.held_back or self.beside
        return held or by_letter(*self.pair, self.have, self.between)

    def worse_than(self, other: TooClose) -> bool:
        """Whether this says more of the same two instructions: an error, or more states."""
        if self.by_letter != other.by_letter:
            return other.by_letter
        return self.need - self.have > other.need - other.have


BARRIER = 64
"""Wait states that a barrier is taken for where the letter asks for more than one: it takes tens of
cycles, which no document says."""

State = dict[int, Recent]


_LONGEST = {made: max(n for (by, _), n in REQUIRED.items() if by == made) for made, _ in REQUIRED}


def check_states(
    steps: tuple[Step, ...], flow: Flow, budget: Budget
) -> dict[tuple[int, int], TooClose]:
    """All pairs (producer, consumer) that are too close, the strictest rule of each; an error goes
    before advice. Raises OutOfSteps when `budget` is spent first.
    """
    reach = [max((_LONGEST.get(k, 0) for _, k in (*s.made, *s.held)), default=0) for s in steps]
    found: dict[tuple[int, int], TooClose] = {}

    def run(at: int, state: State) -> State:
        return _run(steps, reach, flow, at, state, found, budget)

    follow(flow, run, _merge, budget)
    return found


def _merge(known: State, new: State) -> bool:
    changed = False
    for index, one in new.items():
        old = known.get(index)
        merged = one
        if old is not None:
            merged = Recent(
                min(old.passed, one.passed),
                old.made | one.made,
                old.held | one.held,
                min(old.spent, one.spent),
                min(old.busy, one.busy),
                old.between and one.between,
            )
        if merged != old:
            known[index] = merged
            changed = True
    return changed


def _run(
    steps: tuple[Step, ...],
    reach: list[int],
    flow: Flow,
    block: int,
    start: State,
    found: dict[tuple[int, int], TooClose],
    budget: Budget,
) -> State:
    state = dict(start)
    one = flow.blocks[block]
    for index in range(one.first, one.last + 1):
        step = steps[index]
        budget.spend(len(state))
        touched = step.reads | step.writes
        matrix = passes_of(step.ins) if is_matrix(step.ins) else 0
        kept: State = {}
        for producer, recent in state.items():
            if recent.made & touched or recent.held & step.writes:
                close = _closest(steps, steps[producer], step, recent)
                if close is not None:
                    old = found.get((producer, index))
                    if old is None or close.worse_than(old):
                        found[producer, index] = close
            passed = recent.passed + step.states
            made, held = recent.made & ~step.writes, recent.held & ~step.writes
            if passed < reach[producer] and made | held:
                spent, busy, between = recent.spent, recent.busy, recent.between
                if step.is_barrier and busy:
                    spent, between = spent + BARRIER, True
                if matrix:
                    spent = max(spent, busy)
                    busy, between = spent + matrix, True
                kept[producer] = Recent(passed, made, held, spent + step.states, busy, between)
        if reach[index]:
            kept[index] = Recent(0, _needing(step.made), _needing(step.held), 0, matrix)
        state = kept
    return state


def _over(made: str, consumer: Step) -> int:
    """The most wait states that results of a class ask for before an instruction overwrites
    them."""
    return max((REQUIRED.get((made, over), 0) for _, over in consumer.over), default=0)


def _needing(classed: tuple[Classed, ...]) -> int:
    mask = 0
    for registers, kind in classed:
        if _LONGEST.get(kind):
            mask |= registers
    return mask


def _closest(
    steps: tuple[Step, ...], producer: Step, consumer: Step, recent: Recent
) -> TooClose | None:
    """The strictest broken rule between two instructions, None when none is broken."""
    worst: TooClose | None = None
    beside = packs_beside(producer.ins, consumer.ins)

    def consider(mask: int, made: str, used: str) -> None:
        nonlocal worst
        need = REQUIRED.get((made, used), 0)
        if need > recent.passed:
            spent = max(recent.spent, recent.busy if is_matrix(consumer.ins) else 0)
            held_back = recent.between and spent >= need
            first, second = producer.index, consumer.index
            between = in_line(step.ins for step in steps[first + 1 : second])
            close = TooClose(
                first, second, mask, need, recent.passed, (made, used), held_back, between, beside
            )
            if worst is None or close.worse_than(worst):
                worst = close

    for made_mask, made in producer.made:
        made_mask &= recent.made
        if not made_mask:
            continue
        waited = 0
        for used_mask, used in consumer.used:
            if made_mask & used_mask:
                same = any(mask == used_mask for mask, _ in producer.made)
                kind = forwarded(producer.ins, consumer.ins, used, same)
                consider(made_mask & used_mask, made, kind)
                waited |= used_mask * (REQUIRED.get((made, kind), 0) >= _over(made, consumer))
        for over_mask, over in consumer.over:
            if made_mask & over_mask & ~waited:  # what it reads has come before it overwrites it
                kind = forwarded(producer.ins, consumer.ins, over, False)
                consider(made_mask & over_mask & ~waited, made, kind)
    for held_mask, held in producer.held:
        for over_mask, over in consumer.over:
            if held_mask & recent.held & over_mask:
                consider(held_mask & recent.held & over_mask, held, over)
    return worst
