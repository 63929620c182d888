"""Which way unknown branches go: a model of the unknown values, steered as far as it allows.

Every path that is followed has a model that takes it: numbers for kernel arguments, loaded words
and workgroup numbers. A decision once made is kept for the whole workgroup, so that waves which
test the same value, or related ones (i + 64 < n after i < n), never contradict one another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.expressions import OPAQUE, WIDE, Model, Node, Values
from mlagen.audit.gfx950.lds.shapes import needed, ranges
from mlagen.audit.launch import Triple
from mlagen.binary.integers import MASK, signed

_SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192,
          255, 256, 257, 320, 384, 512, 640, 768, 1024, 1 << 30, MASK)  # fmt: skip
_USUAL = 0xFFFF
_LARGE = 4096  # beyond it sizes of LDS may hold arguments down where nothing else does
_MANY = 1024  # rounds, which may be more than are followed
_TRIALS = 4000
"""Models that are tried in one run: after that, branches go as the values have it."""
_TRIAL_STEPS = 20  # nodes that a trial evaluates, about
_SIZES = (*(64 * tiles + more for tiles in range(1, 17) for more in (0, 1)), _LARGE)
_TOGETHER, _DRAWS, _ALL_DRAWS = 16, 1000, 3000  # leaves drawn at once; how often, and in a run
_DRAWN = (0, 1, _LARGE, 1 << 24)  # the last as what a kernel divides before it counts with it
_GRID = (1 << 31, 1 << 16, 1 << 16)
"""Workgroups in x, y, z of the largest grid (`maxGridSize` of HIP's device properties): with more,
products with their numbers would wrap around."""
_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Decisions:
    """The decisions of one run over all waves of a workgroup. `large_first`: which of the values
    that fit are taken, so that one run starts from little work and the next from much. `grid`:
    workgroups in x, y, z, where the launch is known. `argument`: what the one at a byte offset is
    called. `drawn`: what draws of several values at once found none for, in this run or before."""

    def __init__(
        self,
        budget: Budget,
        large_first: bool,
        grid: Triple | None,
        argument: Callable[[int], str],
        drawn: set[tuple[Node, bool]] | None = None,
    ) -> None:
        self._drawn = set() if drawn is None else drawn
        self.enlarged = False  # whether a value was made large to decide as wanted
        self._budget, self._grid, self._argument = budget, grid, argument
        self._large_first = large_first
        self._trials, self._draws = _TRIALS, _ALL_DRAWS
        self._wide = False
        self.model: Model = {}
        self.made: dict[Node, bool] = {}
        self._values = Values(self.model)
        self._about: dict[Node, list[Node]] = {}  # leaf -> conditions decided that depend on it

    def decide(self, condition: Node, want: bool | None) -> bool:
        """Whether the condition holds: `want` if the earlier decisions leave it open."""
        known = self.made.get(condition)
        if known is not None:
            return known
        if len(condition.leaves) > WIDE and want is not None:
            # It goes as the path wants it, and the path need not exist.
            self.made[condition] = want
            self._wide = True
            return want
        holds = bool(self._values.of(condition))
        if want is not None and holds != want and self._trials > 0 and self._steer(condition, want):
            holds = want
        self.made[condition] = holds
        for leaf in condition.leaves:
            self._about.setdefault(leaf, []).append(condition)
        return holds

    def _steer(self, condition: Node, want: bool) -> bool:
        """Change the value of one leaf so that the condition, and all decided ones, come out.

        Sizes are not negative, and what a counter is compared with stands on the right: such
        changes are tried first.
        """
        right = condition.args[-1].leaves if isinstance(condition.args[-1], Node) else frozenset()
        leaves = sorted(condition.leaves, key=lambda leaf: (leaf not in right, leaf.serial))
        tries = dict.fromkeys(
            (leaf, value)
            for leaf in leaves
            for value in self._candidates(condition, leaf, self._values.of(leaf))
            if self._in_the_grid(leaf, value)
        )
        order = list(tries)
        if self._large_first:
            order.sort(key=lambda pair: (pair[0] not in right, -(pair[1] & _USUAL)))
        order.sort(key=lambda pair: pair[1] > MASK >> 1)
        return self._alone(condition, want, order) or self._together(condition, want, leaves)

    def _alone(self, condition: Node, want: bool, order: Iterable[tuple[Node, int]]) -> bool:
        """One value changed."""
        for leaf, value in order:
            if self._fits(condition, want, self._with(leaf, value), (leaf,)):
                return self._take({leaf: value})
        return False

    def _together(self, condition: Node, want: bool, leaves: Sequence[Node]) -> bool:
        """Several values changed at once."""
        # The least of several sizes does not grow with one of them.
        large, fixed = dict.fromkeys(leaves, _LARGE), needed(condition)
        for base in (large, large | fixed) if fixed else (large,):
            raised = {leaf: value for leaf, value in base.items() if self._in_the_grid(leaf, value)}
            single = ({leaf: value} for leaf, value in product(leaves, _SIZES))
            for change in chain(({},), single):
                if all(self._in_the_grid(leaf, value) for leaf, value in change.items()):
                    changed = {**raised, **change}
                    if self._fits(condition, want, Values({**self.model, **changed}), leaves):
                        return self._take(changed)
        # What several loaded bounds hold down grows with none of them alone.
        if not 1 < len(leaves) <= _TOGETHER or (condition, want) in self._drawn:
            return False
        self._drawn.add((condition, want))
        lots = random.Random(len(self.made))
        choices = {leaf: (fixed[leaf], *_DRAWN) if leaf in fixed else _DRAWN for leaf in leaves}
        for _ in range(min(_DRAWS, self._draws)):
            self._draws -= 1
            drawn = {leaf: lots.choice((*choices[leaf], self._values.of(leaf))) for leaf in leaves}
            changed = {leaf: x for leaf, x in drawn.items() if self._in_the_grid(leaf, x)}
            if self._agrees(condition, want, Values({**self.model, **changed}), leaves):
                self._drawn.discard((condition, want))
                return self._take(changed)
        return False

    def asks_for_many(self) -> bool:
        """Whether a path may have more rounds than are followed: a value was made large, or what
        code takes for the largest, negative, or a range to end before it begins."""
        return any(value >= _MANY for value in self.model.values()) or any(
            signed(self._values.of(length)) < 0
            for condition in self.made
            for length in ranges(condition)
        )

    def _take(self, changed: Model) -> bool:
        self.enlarged |= any(signed(value) > _LARGE for value in changed.values())
        self.model = {**self.model, **changed}
        self._values = Values(self.model)
        return True

    def _in_the_grid(self, leaf: Node, value: int) -> bool:
        """Whether a leaf may have a value: there are no workgroups outside of the grid."""
        if leaf.args[0] != "workgroup":
            return True
        return 0 <= value < (self._grid or _GRID)[leaf.args[1]]

    def _with(self, leaf: Node, value: int) -> Values:
        return Values({**self.model, leaf: value & MASK}, self._values, leaf)

    def _fits(self, condition: Node, want: bool, trial: Values, leaves: Iterable[Node]) -> bool:
        self._trials -= 1
        return self._agrees(condition, want, trial, leaves)

    def _agrees(self, condition: Node, want: bool, trial: Values, leaves: Iterable[Node]) -> bool:
        self._budget.spend(_TRIAL_STEPS)
        return bool(trial.of(condition)) == want and all(
            bool(trial.of(other)) == self.made[other]
            for leaf in leaves
            for other in self._about.get(leaf, ())
        )

    def _candidates(self, condition: Node, leaf: Node, old: int) -> Iterator[int]:
        """Values to try: where the two sides meet if they are linear in the leaf, common ones,
        then where they meet if they are not linear, but grow with it."""
        sides = condition.args
        numbers = len(sides) == 2 and all(isinstance(side, Node | int) for side in sides)

        def difference(value: int, number: Callable[[int], int] = signed) -> int:
            self._budget.spend(_TRIAL_STEPS)
            trial = self._with(leaf, value)
            a, b = (trial.of(side) for side in sides)
            return int(number(a) - number(b))

        if numbers:
            here = difference(old)
            for step in (1, 64, 128):
                slope = difference(old + step) - here
                if slope:
                    meet = signed(old) - here * step // slope
                    for near in (0, 1, -1, 2, -2, step, -step):
                        yield int(meet + near) & MASK
        for step in _STEPS:
            yield (old + step) & MASK
            yield (old - step) & MASK
        yield from _SMALL
        if numbers:
            number = signed if condition.op.endswith("_i32") else int
            yield from _crossing(lambda value: difference(value, number))

    def allowed(self, leaves: Sequence[Node]) -> Iterator[Values]:
        """The values under the model, then with another value of one of `leaves`, as far as all
        decisions still come out."""
        yield self._values
        for leaf in leaves:
            about = self._about.get(leaf, ())
            for value in _SMALL:
                if not self._in_the_grid(leaf, value):
                    continue
                trial = self._with(leaf, value)
                self._budget.spend(_TRIAL_STEPS)
                if all(bool(trial.of(other)) == self.made[other] for other in about):
                    yield trial

    def loose(self) -> str:
        """Decisions by values that code computes from known ones in ways that are not evaluated:
        the path need not exist. What data decides may go either way."""
        named = {str(leaf.args[0]) for leaf in self._about if leaf.op == OPAQUE and not leaf.data}
        if self._wide:
            named.add(f"conditions on more than {WIDE} values")
        return ", ".join(sorted(named))

    def says(self, limit: int = 6) -> str:
        """The model in words: what the arguments and loaded values must be for this path."""
        told = [
            f"{self._name(leaf)} = {signed(value)}"
            for leaf, value in self.model.items()
            if leaf in self._about
        ]
        more = f" and {len(told) - limit} more" if len(told) > limit else ""
        return ", ".join(told[:limit]) + more

    def told(self, leaves: Iterable[Node], values: Values) -> str:
        """What values leaves have, in words."""
        return ", ".join(f"{self._name(leaf)} = {signed(values.of(leaf))}" for leaf in leaves)

    def _name(self, leaf: Node) -> str:
        kind, *rest = leaf.args
        if kind == "kernarg":
            return self._argument(rest[0])
        if kind == "workgroup":
            return f"workgroup {'xyz'[rest[0]]}"
        if kind == "memory":
            return "a loaded word"
        return f"a value of {kind}"


def _crossing(difference: Callable[[int], int]) -> Iterator[int]:
    """The two neighbours up to _USUAL between which a difference changes its sign, if it does so
    once: 17 values of it are asked for at most."""
    low, high = 0, _USUAL
    below = difference(low) < 0
    if below == (difference(high) < 0):
        return
    while high - low > 1:
        middle = (low + high) // 2
        if (difference(middle) < 0) == below:
            low = middle
        else:
            high = middle
    yield low
    yield high
