"""wgmma against ordinary code, on all paths: an abstract interpretation to a fixed point.

For every wgmma that may be in flight the state holds the number of groups committed since (0: its
own group is still open). Where paths meet, the youngest counts. The rules are those of the PTX ISA
9.0 ("wgmma.fence", "wgmma.wait_group") and of ptxas's diagnostics C7509-C7519.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

from mlagen.audit.ptx.report import Finding, Notes
from mlagen.audit.ptx.weak import WeakWait, nearest
from mlagen.ptx import Graph, Instruction, Kind
from mlagen.ptx.effects import Wgmma

_MATTERS = (Kind.WGMMA, Kind.WGMMA_FENCE, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT, Kind.BRANCH)
_OLDEST = 16  # groups; a wait_group beyond that is not told apart


@dataclass(frozen=True, slots=True)
class _State:
    # wgmma -> (groups committed since, whether it came over a back edge)
    flying: tuple[tuple[int, int, bool], ...] = ()
    # register -> instruction that accessed it since the last wgmma.fence
    touched: frozenset[tuple[str, int]] = frozenset()
    unfenced: bool = True  # no wgmma.fence on some path from the entry
    # wgmma that were waited for, with the wait: to tell a wait that stands on one path only
    waited: frozenset[tuple[int, int]] = frozenset()
    # wgmma -> (wait that left it in flight, what it asked for, the most that would do)
    weak: frozenset[tuple[int, int, int, int]] = frozenset()
    # carried over a back edge and waited for with a number above 0
    loose: frozenset[tuple[int, int]] = frozenset()


def check(graph: Graph, operands: dict[int, Wgmma], notes: Notes) -> list[Instruction]:
    """Tells `notes` what breaks a rule; returns the fences that order no register: none of those
    that ordinary code accessed before is in a wgmma up to the next fence."""
    return _Check(graph, operands, notes).run() if operands else []


class _Check:
    def __init__(self, graph: Graph, operands: dict[int, Wgmma], notes: Notes) -> None:
        self.graph, self.operands, self.notes = graph, operands, notes
        self.accumulators: dict[str, set[int]] = {}
        self.inputs: dict[str, set[int]] = {}
        for index, parsed in operands.items():
            for name in parsed.accumulators:
                self.accumulators.setdefault(name, set()).add(index)
            if isinstance(parsed.a, tuple):
                for name in parsed.a:
                    self.inputs.setdefault(name, set()).add(index)
        self.telling = False
        names = self.accumulators.keys() | self.inputs.keys()
        self.idle = {
            node
            for node, kind in enumerate(graph.kinds)
            if kind not in _MATTERS
            and graph.successors[node] == (node + 1,)
            and names.isdisjoint(graph.reads[node])
            and names.isdisjoint(graph.writes[node])
        }

    def run(self) -> list[Instruction]:
        """Iterates to the fixed point, then tells."""
        end = self.graph.end
        states: dict[int, _State] = {0: _State()}
        work = [0]
        while work:
            node = heappop(work)
            if node == end:
                continue
            after = self._step(node, states[node])
            for target in self.graph.successors[node]:
                arriving = self._over(node, target, after)
                target = self._passing(target)
                old = states.get(target)
                new = arriving if old is None or old is arriving else _join(old, arriving)
                if new != old:
                    states[target] = new
                    if target not in work:
                        heappush(work, target)
        self.telling = True
        for node in sorted(states):
            if node != end:
                self._step(node, states[node])
        if end in states:
            for index, _, _ in states[end].flying:
                told = "this wgmma may be in flight when the kernel ends"
                self._in_flight("wgmma-unwaited", (index, None), told, states[end])
        return [
            self.graph.instructions[node]
            for node, state in sorted(states.items())
            if node != end
            and self.graph.kinds[node] is Kind.WGMMA_FENCE
            and not state.unfenced
            and not self._used_after(node) & {name for name, _ in state.touched}
        ]

    def _passing(self, node: int) -> int:
        """The next node that does something, through those that do nothing."""
        while node in self.idle:
            node += 1
        return node

    def _used_after(self, fence: int) -> set[str]:
        """Registers of the wgmma that come after a fence, up to the next one."""
        found: set[str] = set()
        seen: set[int] = set()
        work = list(self.graph.successors[fence])
        while work:
            node = work.pop()
            if node == self.graph.end or node in seen:
                continue
            seen.add(node)
            if self.graph.kinds[node] is Kind.WGMMA_FENCE:
                continue
            if self.graph.kinds[node] is Kind.WGMMA:
                parsed = self.operands[node]
                found.update(parsed.accumulators)
                if isinstance(parsed.a, tuple):
                    found.update(parsed.a)
            work.extend(self.graph.successors[node])
        return found

    def _over(self, node: int, target: int, state: _State) -> _State:
        """A loop carries the wgmma that it issues; those issued before it only stay in flight, as
        while its threads wait for an mbarrier. ptxas serialises for the former alone."""
        if (node, target) not in self.graph.back_edges or not state.flying:
            return state
        inside = self.graph.loop((node, target))
        flying = tuple((i, age, back or i in inside) for i, age, back in state.flying)
        return replace(state, flying=flying)

    def _step(self, node: int, state: _State) -> _State:
        kind = self.graph.kinds[node]
        instruction = self.graph.instructions[node]
        if kind is Kind.WGMMA:
            return self._issue(node, instruction, state)
        if kind is Kind.WGMMA_FENCE:
            if instruction.guard:
                return state
            return replace(state, touched=frozenset(), unfenced=False)
        if kind is Kind.WGMMA_COMMIT:
            aged = tuple((i, min(age + 1, _OLDEST), b) for i, age, b in state.flying)
            return replace(state, flying=aged)
        if kind is Kind.WGMMA_WAIT:
            return self._wait(node, instruction, state)
        return self._ordinary(node, state)

    def _issue(self, node: int, instruction: Instruction, state: _State) -> _State:
        parsed = self.operands[node]
        if instruction.guard:
            self._tell(
                "wgmma-predicated",
                node,
                "a guard on a wgmma makes ptxas insert waits",
                needs="the scale-d predicate instead",
            )
        registers = set(parsed.accumulators)
        inputs = set(parsed.a) if isinstance(parsed.a, tuple) else set()
        fresh = {name: at for name, at in state.touched if name in registers | inputs}
        if state.unfenced:
            self._tell(
                "wgmma-fence",
                node,
                "no wgmma.fence on a path from the entry to this wgmma",
                needs="wgmma.fence before it",
            )
        elif fresh:
            name, at = min(fresh.items(), key=lambda item: item[1])
            self._tell(
                "wgmma-fence",
                node,
                f"{name} was accessed by ordinary code, and no wgmma.fence follows",
                other=at,
                needs="wgmma.fence between the two",
            )
        for index, _, _ in state.flying:
            other = self.operands[index]
            shape = (other.m, other.n) != (parsed.m, parsed.n)
            held = set(other.accumulators)
            if (registers & held and (shape or held != registers)) or inputs & held:
                name = min(registers & held or inputs & held)
                self._tell(
                    "wgmma-in-flight",
                    node,
                    f"{name} is an accumulator of a wgmma that may be in flight",
                    other=index,
                    needs="wgmma.wait_group between the two",
                )
        flying = tuple(x for x in state.flying if x[0] != node)
        return replace(
            state,
            flying=tuple(sorted((*flying, (node, 0, False)))),
            waited=frozenset(x for x in state.waited if x[0] != node),
            weak=frozenset(x for x in state.weak if x[0] != node),
            loose=frozenset(x for x in state.loose if x[0] != node),
        )

    def _wait(self, node: int, instruction: Instruction, state: _State) -> _State:
        number = instruction.operands[0] if instruction.operands else 0
        pending = number if isinstance(number, int) else 0
        done = {i: back for i, age, back in state.flying if age > pending}
        for index, age, _ in state.flying:
            if age == 0:
                self._tell(
                    "wgmma-uncommitted",
                    node,
                    "a wgmma before this wait is in no committed group: the wait does not cover it",
                    other=index,
                    needs="wgmma.commit_group between the two",
                )
        if instruction.guard:
            for index in done:
                self._tell(
                    "wgmma-wait-conditional",
                    node,
                    "a guard on the wait",
                    other=index,
                    needs="the wait on every path",
                )
            return state
        loose = {(i, node) for i, back in done.items() if back and pending}
        return replace(
            state,
            flying=tuple(x for x in state.flying if x[0] not in done),
            waited=state.waited | {(i, node) for i in done},
            weak=frozenset(x for x in state.weak if x[0] not in done)
            | {(i, node, pending, age - 1) for i, age, _ in state.flying if 0 < age <= pending},
            loose=frozenset() if not pending else state.loose | loose,
        )

    def _ordinary(self, node: int, state: _State) -> _State:
        reads, writes = self.graph.reads[node], self.graph.writes[node]
        flying = {i for i, _, _ in state.flying}
        touched: set[tuple[str, int]] = set()
        for name in (*reads, *writes):
            if name in self.accumulators:
                touched.add((name, node))
                for index in sorted(self.accumulators[name] & flying):
                    verb = "written" if name in writes else "read"
                    for wait in sorted(w for i, w in state.waited if i == index):
                        self._tell(
                            "wgmma-wait-conditional",
                            wait,
                            f"{name} is used after this wait, but a path goes around it",
                            other=node,
                            needs="the wait on every path",
                        )
                    self._in_flight(
                        "wgmma-in-flight",
                        (node, index),
                        f"{name} is {verb} while a wgmma that accumulates in it may be in flight",
                        state,
                    )
                for index, wait in state.loose:
                    if name in self.operands[index].accumulators:
                        self._tell(
                            "wgmma-back-edge",
                            wait,
                            f"{name} is in flight over the loop's back edge and used after a"
                            " wait_group above 0: ptxas serialises every wgmma",
                            other=node,
                            needs="wgmma.wait_group 0",
                        )
        for name in writes:
            if name in self.inputs:
                touched.add((name, node))
                for index in sorted(self.inputs[name] & flying):
                    self._in_flight(
                        "wgmma-a-overwritten",
                        (node, index),
                        f"{name} is operand A of a wgmma that may be in flight",
                        state,
                    )
        return replace(state, touched=state.touched | touched) if touched else state

    def _in_flight(
        self, rule: str, pair: tuple[int, int | None], message: str, state: _State
    ) -> None:
        """What a wgmma in flight breaks, at a node, and the wait that lets it. `pair`: the node and
        the wgmma; None: the wgmma is the node, and the kernel ends."""
        if not self.telling:
            return
        node, other = pair
        index = node if other is None else other
        least: dict[int, WeakWait] = {}
        for i, wait, asked, most in sorted(state.weak, reverse=True):
            if i == index:  # the fewest of any path come last
                least[wait] = WeakWait(self.graph.instructions[wait], asked, most)
        weak = nearest([least[wait] for wait in sorted(least)])
        if weak is None:
            needs = "a wgmma.wait_group that covers its group"
            if other is None:
                needs = "wgmma.wait_group 0 before the end"
            self._tell(rule, node, message, other=other, needs=needs)
            return
        at = self.graph.instructions[node]
        second = None if other is None else self.graph.instructions[other]
        told = f"{message}; {weak.told}"
        found = Finding.at(rule, self.notes.function, at, told, other=second, needs=weak.needs)
        self.notes.add(replace(found, change=weak.at.line))

    def _tell(
        self, rule: str, node: int, message: str, *, other: int | None = None, needs: str = ""
    ) -> None:
        if self.telling:
            at = self.graph.instructions[node]
            second = self.graph.instructions[other] if other is not None else None
            function = self.notes.function
            self.notes.add(Finding.at(rule, function, at, message, other=second, needs=needs))


def _join(a: _State, b: _State) -> _State:
    flying: dict[int, tuple[int, bool]] = {}
    for index, age, back in (*a.flying, *b.flying):
        old_age, old_back = flying.get(index, (_OLDEST, False))
        flying[index] = (min(age, old_age), back or old_back)
    return _State(
        flying=tuple(sorted((i, age, back) for i, (age, back) in flying.items())),
        touched=a.touched | b.touched,
        unfenced=a.unfenced or b.unfenced,
        waited=a.waited | b.waited,
        weak=a.weak | b.weak,
        loose=a.loose | b.loose,
    )
