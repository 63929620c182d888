"""The hand-off proof: every tile is filled, used and released in order, for all roles and every N.

Reads the final operation sequences (waits in place, group waits as printed) and follows each role
for N = 1, 2, ... Checked of every hand-off:

* its producer waits for the slot to be empty before it fills it, and fills tiles 0, 1, ... N-1;
* its consumer waits for the tile to be full before each use, and uses no tile after releasing it;
* at a release no matrix group that reads the tile is in flight, and ordinary code touches an
  accumulator only when no group that writes it is;
* run against each other, the roles end: no wait is left without its arrival.

A copy of tile t therefore comes after the release of tile t - depth, which comes after every read
of it. From one loop pass to the next only the tile number changes, so N up to two passes beyond
the deepest ring stands for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.codegen.expand import expand_loop
from mlagen.codegen.sm_90a.derive import Loop, section
from mlagen.dsl import Operation
from mlagen.dsl.pipeline import PipelineSchedule
from mlagen.dsl.smem import Handoff


@dataclass(frozen=True, slots=True)
class HandoffProof:
    """`checked`: uses, copies and releases looked at; `tiles`: largest N."""

    violations: tuple[str, ...]
    checked: int
    tiles: int


@dataclass
class _Wave:
    """One role on its way through a run of N tiles."""

    name: str
    events: list[tuple[str, str, int]]  # (wait_full | wait_empty | copy | release, hand-off, tile)
    at: int = 0


@dataclass
class _Walk:
    """Checks one role's program order."""

    schedule: PipelineSchedule
    loop: Loop
    n: int
    problems: list[str] = field(default_factory=list)
    events: list[tuple[str, str, int]] = field(default_factory=list)
    checked: int = 0

    def run(self) -> None:
        loop, role = self.loop, self.loop.stream.role.name
        moving = {h.name: h for h in self.schedule.smem.handoffs.values() if not h.resident}
        index_of = {id(step): index for index, step in enumerate(loop.cluster.steps)}
        full: set[tuple[str, int]] = set()
        empty: set[tuple[str, int]] = set()
        released: set[tuple[str, int]] = set()
        groups: list[Operation] = []  # in flight, oldest first
        tiles_of: list[dict[str, int]] = []
        for instance in expand_loop([loop.cluster], loop.edge, self.n):
            where = section(loop.edge, instance.i, self.n)
            for op in instance.operations:
                wait = loop.groups.get((where, index_of[id(op)]))
                if wait is not None and len(groups) > wait:
                    del groups[: len(groups) - wait]
                    del tiles_of[: len(tiles_of) - wait]
                tile = instance.i + (op.tile.offset if op.tile else 0)
                names = {v.block for v in op.uses if v.block in moving}
                if op.access is not None:
                    names.add(op.access.target.ring)
                for name in sorted(names):
                    key = (name, tile)
                    self.checked += 1
                    if op.name in ("wait_full", "wait_empty"):
                        (full if op.name == "wait_full" else empty).add(key)
                        self.events.append((op.name, name, tile))
                    elif op.access is not None and op.access.kind == "copy":
                        if key not in empty:
                            self._problem(op, f"fills {name}({tile}) without waiting for its slot")
                        self.events.append(("copy", name, tile))
                    elif op.access is not None and op.access.kind == "release":
                        if any(held.get(name) == tile for held in tiles_of):
                            self._problem(op, f"{name}({tile}) is still read by a matrix group")
                        released.add(key)
                        self.events.append(("release", name, tile))
                    else:
                        if key not in full:
                            self._problem(op, f"uses {name}({tile}) before it is full")
                        if key in released:
                            self._problem(op, f"uses {name}({tile}) after its release")
                if not op.asynchronous:
                    touched = {v.block for v in (*op.uses, *op.defines)} - set(moving)
                    for flying in groups:
                        hit = touched & {value.block for value in flying.defines}
                        if hit:
                            self._problem(op, f"touches {min(hit)} while {flying} is in flight")
                else:
                    groups.append(op)
                    tiles_of.append(dict.fromkeys(names, tile))
        self._complete(role, moving)
        if groups and loop.final is None:
            self._problem(groups[-1], "is still in flight after the loop")

    def _complete(self, role: str, moving: dict[str, Handoff]) -> None:
        for handoff in moving.values():
            for kind, mine in (
                ("copy", handoff.producer == role),
                ("release", handoff.consumer == role),
            ):
                tiles = [t for k, name, t in self.events if k == kind and name == handoff.name]
                if mine and tiles != list(range(self.n)):
                    verb = {"copy": "fills", "release": "releases"}[kind]
                    self.problems.append(
                        f"role {role} {verb} {handoff.name!r} for tiles {tiles} of {self.n}"
                    )

    def _problem(self, op: Operation, what: str) -> None:
        self.problems.append(
            f"error[hand-off] {self.schedule.file}:{op.line} {op} of role "
            f"{self.loop.stream.role.name} {what}. First at N = {self.n}."
        )


def prove_handoffs(schedule: PipelineSchedule, loops: list[Loop]) -> HandoffProof:
    """Check all hand-offs of all roles for every N."""
    deepest = max((h.depth for h in schedule.smem.handoffs.values()), default=1)
    largest = max(loop.edge.first_looped for loop in loops) + deepest + 2
    problems: dict[str, None] = {}
    checked = 0
    for n in range(1, largest + 1):
        waves = []
        for loop in loops:
            walk = _Walk(schedule, loop, n)
            walk.run()
            checked += walk.checked
            problems.update(dict.fromkeys(walk.problems))
            waves.append(_Wave(loop.stream.role.name, walk.events))
        stuck = _deadlock(schedule, waves, n)
        if stuck:
            problems[stuck] = None
        if problems:
            break
    return HandoffProof(tuple(problems), checked, largest)


def _deadlock(schedule: PipelineSchedule, waves: list[_Wave], n: int) -> str:
    """Runs the roles against each other; says who waits for what if they do not end."""
    copied: set[tuple[str, int]] = set()
    released: set[tuple[str, int]] = set()
    moved = True
    while moved:
        moved = False
        for wave in waves:
            while wave.at < len(wave.events):
                kind, name, tile = wave.events[wave.at]
                depth = schedule.smem.handoffs[name].depth
                if kind == "wait_full" and (name, tile) not in copied:
                    break
                if kind == "wait_empty" and tile >= depth and (name, tile - depth) not in released:
                    break
                if kind == "copy":
                    copied.add((name, tile))
                elif kind == "release":
                    released.add((name, tile))
                wave.at += 1
                moved = True
    for wave in waves:
        if wave.at < len(wave.events):
            kind, name, tile = wave.events[wave.at]
            return (
                f"error[deadlock] {schedule.file}: role {wave.name} stays at {kind} of "
                f"{name}({tile}), N = {n}; the hand-off is "
                f"{schedule.smem.handoffs[name].depth} deep"
            )
    return ""
