"""Clusters, roles and loops, lifted from the decoded code of a gfx950 kernel.

A role is a set of waves that reach the same barriers and loops; which way a wave goes at a branch
on its number is evaluated (`mlagen.inspect.values`). A cluster ends at a barrier, where control
does not fall through, where a loop begins or ends, where another set of roles begins, and where a
jump from elsewhere comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlagen.artifact import RoleMap
from mlagen.binary.effects import is_matrix
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.inspect.model import CodeLoop, CodeRole, Timeline
from mlagen.inspect.values import WaveView

_STOPS = ("s_branch", "s_endpgm", "s_setpc_b64", "s_swappc_b64", "s_call_b64")


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the waves of a role come: blocks, and edges between them."""

    blocks: frozenset[int]
    edges: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Lifted:
    """`runs`: (first, last) instruction index of each cluster, `roles_of` and `loop_of` by run."""

    flow: Flow
    roles: tuple[CodeRole, ...]
    reached: dict[str, Reach]
    runs: tuple[tuple[int, int], ...]
    roles_of: tuple[tuple[str, ...], ...]
    loop_of: tuple[int | None, ...]

    def loop_name(self, index: int | None) -> str:
        """ "L2" for the second outermost loop, "L2.1" for the first one inside it."""
        if index is None:
            return ""
        loops = self.flow.loops
        parent = loops[index].parent
        same = sorted(
            (i for i, loop in enumerate(loops) if loop.parent == parent),
            key=lambda i: loops[i].head,
        )
        number = str(same.index(index) + 1)
        return f"L{number}" if parent is None else f"{self.loop_name(parent)}.{number}"


def find_roles(
    flow: Flow, views: Sequence[WaveView], known: Sequence[RoleMap] = ()
) -> tuple[tuple[CodeRole, ...], dict[str, Reach]]:
    """Waves in groups that meet the same barriers and loops: by the names of `known` roles of the
    same waves, or else after the waves."""
    heads = {loop.head for loop in flow.loops}

    def met(view: WaveView) -> frozenset[int]:
        return frozenset(at for at in view.reached if at in heads or _barriers(flow, at))

    groups: dict[frozenset[int], list[WaveView]] = {}
    for view in views:
        groups.setdefault(met(view), []).append(view)
    named = {(role.first, role.last): role for role in known}
    roles, reached = [], {}
    for group in groups.values():
        waves = [view.wave for view in group]
        first, last = waves[0], waves[-1]
        whole = waves == list(range(first, last + 1))
        note = "" if whole else "waves " + ", ".join(map(str, waves))
        name, stagger = f"waves {first}-{last}" if first != last else f"wave {first}", 0
        if (first, last) in named:
            name, stagger = named[first, last].name, named[first, last].stagger
        roles.append(CodeRole(name, first, last, "wave", stagger, note=note))
        reached[name] = Reach(
            frozenset(at for view in group for at in view.reached),
            frozenset(edge for view in group for edge in view.taken),
        )
    return tuple(roles), reached


def _barriers(flow: Flow, block: int) -> int:
    one = flow.blocks[block]
    return sum(flow.instructions[i].mnemonic == "s_barrier" for i in range(one.first, one.last + 1))


def lift(
    flow: Flow,
    roles: tuple[CodeRole, ...],
    reached: Mapping[str, Reach],
    label: Callable[[MachineInstruction], object] = lambda ins: None,
) -> Lifted:
    """Cut the code into clusters. Where `label` changes from one instruction to the next, a cluster
    ends too: an artifact's line map knows its clusters by name."""
    code = flow.instructions
    block_of = [0] * len(code)
    for block in flow.blocks:
        for index in range(block.first, block.last + 1):
            block_of[index] = block.index
    members = [
        tuple(role.name for role in roles if block.index in reached[role.name].blocks)
        for block in flow.blocks
    ]
    runs: list[tuple[int, int]] = []
    start = 0
    for index in range(1, len(code) + 1):
        if index < len(code):
            before, here = block_of[index - 1], block_of[index]
            comes_in = here != before and any(
                not start <= flow.blocks[source].last < index for source in flow.predecessors[here]
            )
            cut = (
                code[index - 1].mnemonic == "s_barrier"
                or code[index - 1].mnemonic in _STOPS
                or flow.innermost.get(before) != flow.innermost.get(here)
                or members[before] != members[here]
                or comes_in
                or label(code[index - 1]) != label(code[index])
            )
            if not cut:
                continue
        runs.append((start, index - 1))
        start = index
    return Lifted(
        flow,
        roles,
        dict(reached),
        tuple(runs),
        tuple(members[block_of[first]] for first, _ in runs),
        tuple(flow.innermost.get(block_of[first]) for first, _ in runs),
    )


def end_of(ins: MachineInstruction) -> str:
    """How a cluster whose last instruction this is ends."""
    if ins.mnemonic == "s_barrier":
        return "barrier"
    if ins.mnemonic == "s_endpgm":
        return "end"
    return "jump" if ins.branch_target is not None else "falls through"


def loops_of(lifted: Lifted) -> tuple[CodeLoop, ...]:
    """All loops with their names, and the barriers of one pass where all ways agree."""
    flow, found = lifted.flow, []
    for index, loop in enumerate(flow.loops):
        roles = tuple(r.name for r in lifted.roles if loop.body & lifted.reached[r.name].blocks)
        low = min(flow.blocks[b].first for b in loop.body)
        high = max(flow.blocks[b].last for b in loop.body)
        found.append(
            CodeLoop(
                lifted.loop_name(index),
                flow.instructions[low].offset,
                flow.instructions[high].offset,
                lifted.loop_name(loop.parent),
                roles,
                barriers_of_pass(flow, index),
            )
        )
    return tuple(sorted(found, key=lambda loop: [int(n) for n in loop.name[1:].split(".")]))


def barriers_of_pass(flow: Flow, loop: int) -> int | None:
    """Barriers from a loop's head round to it again; None where the ways differ."""
    head, counts = flow.loops[loop].head, _round(flow, loop)
    if counts is None:
        return None
    ends = {
        counts[block] + _barriers(flow, block)
        for block in counts
        if head in flow.blocks[block].successors
    }
    return ends.pop() if len(ends) == 1 else None


def _passed(
    flow: Flow, start: int, goes: Callable[[int, int], bool], period: int = 0
) -> dict[int, int] | None:
    """Barriers passed on the way from `start` to the start of each block, over the edges that
    `goes` takes; None where two ways to a block differ. Modulo `period`, where there is one."""
    counts = {start: 0}
    work = [start]
    while work:
        block = work.pop()
        after = counts[block] + _barriers(flow, block)
        after = after % period if period else after
        for following in flow.blocks[block].successors:
            if not goes(block, following):
                continue
            if following not in counts:
                counts[following] = after
                work.append(following)
            elif counts[following] != after:
                return None
    return counts


def _round(flow: Flow, loop: int) -> dict[int, int] | None:
    """Barriers passed from a loop's head to each of its blocks, on one pass."""
    inside = flow.loops[loop].body - {flow.loops[loop].head}
    return _passed(flow, flow.loops[loop].head, lambda _, following: following in inside)


def timeline(lifted: Lifted, ids: Sequence[str]) -> Timeline:
    """Which clusters of the roles' main loops share the time between two barriers. `ids`: names of
    the runs."""
    flow = lifted.flow
    rows: list[tuple[str, int, int, int]] = []  # role, loop, barriers a pass, barriers before
    for role in lifted.roles:
        main = _main_loop(lifted, role.name)
        if main is None:
            return Timeline(0, why=f"role {role.name} has no loop with matrix instructions")
        period = barriers_of_pass(flow, main)
        if not period:
            what = "no barrier" if period == 0 else "barriers in numbers that differ"
            return Timeline(0, why=f"the loop of role {role.name} passes {what}")
        before = _before(lifted, role.name, flow.loops[main].head, period)
        if before is None:
            return Timeline(
                0, why=f"role {role.name} reaches its loop past barriers in numbers that differ"
            )
        rows.append((role.name, main, period, before))
    periods = {period for _, _, period, _ in rows}
    if len(periods) != 1:
        return Timeline(0, why="the roles' loops pass different numbers of barriers")
    period = periods.pop()
    drawn = []
    for role_name, main, _, before in rows:
        counts = _round(flow, main) or {}
        cells: list[list[str]] = [[] for _ in range(period)]
        shift = before - rows[0][3]
        order = sorted(counts, key=lambda block: (counts[block], block))
        for block in order:
            one = flow.blocks[block]
            passed = counts[block]
            for index in range(one.first, one.last + 1):
                run = next(i for i, (a, b) in enumerate(lifted.runs) if a <= index <= b)
                cell = cells[(passed + shift) % period]
                if ids[run] not in cell:
                    cell.append(ids[run])
                passed += flow.instructions[index].mnemonic == "s_barrier"
        drawn.append((role_name, tuple(tuple(cell) for cell in cells)))
    return Timeline(period, tuple(drawn))


def _main_loop(lifted: Lifted, role: str) -> int | None:
    """The innermost loop with the most matrix instructions that a role reaches."""
    flow = lifted.flow
    parents = {loop.parent for loop in flow.loops}

    def matrix(index: int) -> int:
        return sum(
            is_matrix(flow.instructions[i])
            for block in flow.loops[index].body
            for i in range(flow.blocks[block].first, flow.blocks[block].last + 1)
        )

    held = [
        index
        for index, loop in enumerate(flow.loops)
        if index not in parents and loop.body <= lifted.reached[role].blocks and matrix(index)
    ]
    return max(held, key=lambda index: (matrix(index), -flow.loops[index].head), default=None)


def _before(lifted: Lifted, role: str, head: int, period: int) -> int | None:
    """Barriers that a role passes before it reaches `head`, modulo `period`."""
    flow, edges = lifted.flow, lifted.reached[role].edges
    # Only blocks from which the head can be reached: ways that never enter the loop do not count.
    useful, work = {head}, [head]
    while work:
        target = work.pop()
        for source in flow.predecessors[target]:
            if (source, target) in edges and source not in useful:
                useful.add(source)
                work.append(source)
    counts = _passed(flow, 0, lambda a, b: a != head and b in useful and (a, b) in edges, period)
    return None if counts is None else counts.get(head)
