"""All paths of a block, as a tree: a run is copied at each decision that can go both ways."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from mlagen.audit.ptx.cta import Cta
from mlagen.audit.ptx.parity import Trials, blame
from mlagen.audit.ptx.paths import Fork, Path, Stuck, named_again, told
from mlagen.audit.ptx.program import EntryProgram, Setting
from mlagen.audit.ptx.protocol import PROTOCOL
from mlagen.audit.ptx.report import Notes
from mlagen.audit.ptx.state import PathsSeen, State
from mlagen.audit.ptx.values import Term
from mlagen.ptx import Kind
from mlagen.severity import ERROR, any_error

MAX_RUNS = 400
_ROUNDS = 4  # of a loop of unknown length, at least
_MOST_ROUNDS = 24  # where code after a loop is not reached with fewer
# A long path meets most of what can go wrong, and the ring's slots: decisions and rounds, ever more
# of them, but where the one before was long already (rounds that the text tells, in others).
_PILOTS = ((1, 2), (3, 4), (8, 10))
_LONG = 30_000  # steps of a block
_MASK = (1 << 64) - 1
# Nobody launches a kernel for nothing, and kernels need not end then.
_HANGS = ("deadlock", "mbarrier-arrivals", "mbarrier-transaction")
_EMPTY = "the kernel is launched with a parameter of 0"
# Whoever writes a list of work writes none of nothing.
_RANGE = (
    "memory holds a range that is empty, its end at or before its begin (`mlagen emulate` with the"
    " launch's data tells)"
)


@dataclass(slots=True)
class Explored:
    """What the paths showed."""

    seen: PathsSeen = field(default_factory=PathsSeen)
    runs: int = 0
    rounds: int = 0
    truncated: bool = False
    impossible: int = 0
    blind: bool = False  # some access was not followed
    flow: int = 0
    complete: bool = True  # all paths were followed
    trials: Trials = field(default_factory=Trials)

    def gaps(self, notes: Notes) -> None:
        """Tells what was not followed."""
        if not self.complete:
            notes.gap(f"there are more paths than the {self.runs} that were followed")
        if self.impossible:
            notes.gap(
                f"{self.impossible} combinations of branches were left out: no values of the"
                " parameters were found that lead to them"
            )
        if self.truncated:
            notes.gap(
                f"loops of unknown length were followed for up to {self.rounds} rounds; beyond,"
                " slots and parities are taken to repeat"
            )


def explore(
    program: EntryProgram, setting: Setting, trips: int, notes: Notes, *, first: bool
) -> Explored:
    """Follows every path twice: with copies that land at once and the warps in ascending order,
    and with copies that land as late as they can and the warps in descending order. `first`: one
    path with an error is enough."""
    found = Explored()
    settings = [replace(setting, late=late, reverse=late) for late in (False, True)]
    for one in settings[: 2 if first else 1]:
        shortened = _Walk(program, one, notes, found, first).pilot()
        if (first and notes.wrong) or not found.complete:
            blame(program, found.trials, notes)
            found.gaps(notes)
            return found
    found.rounds = max(trips or shortened or _rounds(found.seen), 1)
    trips = trips or shortened
    reached = -1
    while True:
        walk = Explored(seen=found.seen, rounds=found.rounds, trials=found.trials)
        _Walk(program, settings[0], notes, walk, first).run()
        if first and notes.wrong:
            return walk
        more = 0 if trips else _more_rounds(program, walk, reached)
        if not more:
            break
        # The ring is longer than was thought, or code after the loop wants more rounds.
        reached, found = len(walk.seen.reached), walk
        found.rounds = more
    _Walk(program, settings[1], notes, walk, first).run()
    blame(program, walk.trials, notes)
    walk.gaps(notes)
    if told := told_unreached(program, walk.seen.reached):
        notes.gap(told)
    return walk


def _more_rounds(program: EntryProgram, walk: Explored, reached: int) -> int:
    """How many rounds to begin again with, or 0: as long as that leads to more of the code."""
    if _rounds(walk.seen) > walk.rounds:
        return _rounds(walk.seen)
    wanting = walk.truncated and walk.complete and bool(unreached(program, walk.seen.reached))
    if wanting and len(walk.seen.reached) > reached and walk.rounds < _MOST_ROUNDS:
        return walk.rounds + _ROUNDS
    return 0


def told_unreached(program: EntryProgram, reached: set[int]) -> str:
    """The lines that no path led to, as a gap; "" for none."""
    lines = unreached(program, reached)
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:8])) + (", …" if len(lines) > 8 else "")
    fences = unreached(program, reached, {Kind.PROXY_FENCE, Kind.INIT_FENCE, Kind.WGMMA_FENCE})
    told = (
        f"{len(lines)} lines with synchronisations or accesses are on no path that was"
        f" followed: {shown}"
    )
    if fences:
        told += f"; fences among them, of which nothing is told: {', '.join(map(str, fences[:8]))}"
    return told


def unreached(
    program: EntryProgram, reached: set[int], kinds: Collection[Kind] = PROTOCOL
) -> list[int]:
    """Lines of synchronisations and accesses that no path led to."""
    graph = program.graph
    return sorted(
        {
            program.entry.instructions[i].line
            for i, kind in enumerate(graph.kinds)
            if kind in kinds and i not in reached and i in graph.reachable
        }
    )


def _rounds(seen: PathsSeen) -> int:
    """Twice round the longest ring, and two more."""
    ring = max((len(found) for found in seen.slots.values()), default=0)
    return max(2 * ring + 2, _ROUNDS)


@dataclass(slots=True)
class _Walk:
    """A depth-first walk over the paths of one setting."""

    program: EntryProgram
    setting: Setting
    notes: Notes
    found: Explored
    first: bool

    def pilot(self) -> int:
        """One long path. The rounds that paths may have so as not to be too long; 0: any."""
        for decisions, trips in _PILOTS:
            cta = self._begin(Path((False,) * decisions, trips))
            self._finish(cta)
            if cta.state.steps > _LONG * self.setting.blocks:
                break
        self._leaf(cta.state)
        return 0 if trips == _PILOTS[-1][1] else trips

    def run(self) -> None:
        """All paths."""
        stack = [self._begin(Path((), self.found.rounds, forking=True))]
        runs = 0
        while stack:
            cta = stack.pop()
            path = cta.state.path
            try:
                cta.run()
            except Fork as fork:
                if not path.possible():
                    self.found.impossible += 1
                    continue
                if self.first and any_error(cta.state.findings) and not path.unresolved:
                    self._leaf(cta.state)
                    return
                other = cta.clone()
                path.choose(fork.first)
                other.state.path.choose(not fork.first)
                stack += [other, cta]
                continue
            except Stuck:
                self._too_long(cta.state)
                self._leaf(cta.state)
                return
            if runs >= MAX_RUNS:
                self.found.complete = False
                return
            runs += 1
            self._leaf(cta.state)
            if self.first and self.notes.wrong:
                return
            if runs % 2 and stack:
                # Every second path goes the other way at the oldest decision: should time or the
                # number of paths run out, those that were followed differ from the first one on.
                stack.append(stack.pop(0))

    def _begin(self, path: Path) -> Cta:
        path.bounds = self.setting.bounds
        return Cta.begin(self.program, self.setting, path, self.found.seen)

    def _finish(self, cta: Cta) -> None:
        try:
            cta.run()
        except Stuck:
            self._too_long(cta.state)

    def _too_long(self, state: State) -> None:
        self.found.complete = False
        state.blind = True
        state.gap("a path did not end within the steps that are followed")

    def _leaf(self, state: State) -> None:
        """The end of a path; its findings are told if some parameters take it."""
        path = state.path
        self.found.runs += 1
        self.notes.paths += 1
        self.found.truncated |= path.truncated
        if not path.possible():
            self.found.impossible += 1
            return
        if not state.findings and not path.unresolved:
            self._take(state)
            if not self.first:
                self.found.trials.add(self.setting, state)
            return
        values = path.witnesses() or [path.witness or {}]  # found before it was narrowed
        for run, value in self._resolved(state, values):
            self._take(run)
            if not self.first:
                self.found.trials.add(self.setting, run)
            hangs = any(f.rule in _HANGS and f.severity == ERROR for f in run.findings)
            empty = hangs and self._is_empty(path)
            for finding in run.findings:
                if path.empty and finding.severity == ERROR:
                    finding = finding.resting_on(_RANGE)
                if empty and finding.rule in _HANGS and finding.severity == ERROR:
                    finding = finding.resting_on(_EMPTY)
                self.notes.add(replace(finding, when=told(value)))

    def _is_empty(self, path: Path) -> bool:
        """Whether a path is taken only where a parameter is 0 that is a number, not a pointer."""
        return not path.found(dict.fromkeys(self.program.words, 1))

    def _resolved(
        self, state: State, values: list[dict[Term, int]]
    ) -> Iterator[tuple[State, dict[Term, int]]]:
        """The path itself, or runs of it with numbers for what was left open."""
        if not state.path.unresolved:
            yield state, values[0]
            return
        for value in values:
            fixed = named_again(value)
            cta = self._begin(Path((), self.found.rounds or _PILOTS[-1][1], fixed=fixed))
            self._finish(cta)
            self.found.runs += 1
            yield cta.state, value

    def _take(self, state: State) -> None:
        self.notes.unchecked.update(state.gaps)
        self.found.seen.reached |= state.reached
        self.notes.reached |= state.reached
        self.found.blind |= state.blind
        name = (tuple(state.path.taken), tuple(sorted(state.path.fixed.items(), key=repr)))
        self.found.flow = (self.found.flow + hash((name, state.flow))) & _MASK
