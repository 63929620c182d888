"""What the waves of a simulated unit did in their hot loops: roles, clusters, utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mlagen.binary.effects import is_lds_dma
from mlagen.targets.gfx950.limits import GFX950
from mlagen.timing import cycle_program, cycle_state
from mlagen.timing.loops import HotLoop, find_loop, flops_of
from mlagen.timing.model import ClusterTimes, Place, RoleTimes, StallLine
from mlagen.timing.unit import UnitTimes


def hot_loops(unit: UnitTimes, tiles: int | None) -> list[HotLoop]:
    """The loop of every wave of the first workgroup."""
    kernel = unit.program.kernel
    return [find_loop(kernel, wave, tiles) for wave in unit.waves if wave.workgroup == 0]


def roles_of(
    unit: UnitTimes, loops: Sequence[HotLoop], place: Place | None
) -> tuple[RoleTimes, ...]:
    """Waves with the same loop are one role; the first of them speaks for all."""
    heads = list(dict.fromkeys(loop.head for loop in loops))
    found = []
    for head in heads:
        mine = [loop for loop in loops if loop.head == head]
        found.append(_role(unit, mine, place))
    return tuple(found)


def _role(unit: UnitTimes, loops: list[HotLoop], place: Place | None) -> RoleTimes:
    kernel, rows = unit.program.kernel, unit.program.rows
    loop = loops[0]
    matrix = rows[loop.iteration, cycle_program.UNIT] == cycle_program.MATRIX
    cycles = [one.cycles(unit.waves[one.wave].issued) for one in loops]
    return RoleTimes(
        waves=tuple(one.wave for one in loops),
        loop=kernel.instructions[loop.head].offset,
        iterations=len(loop.starts),
        instructions=len(loop.iteration) / loop.tiles,
        tiles=loop.tiles,
        cycles=float(np.mean(cycles)) / loop.tiles,
        matrix=float(matrix.sum()) / loop.tiles,
        matrix_cycles=float(rows[loop.iteration[matrix], cycle_program.BUSY].sum()) / loop.tiles,
        flops=sum(flops_of(kernel.instructions[row]) for row in loop.iteration) / loop.tiles,
        clusters=tuple(_clusters(unit, loop, place)),
    )


def _clusters(unit: UnitTimes, loop: HotLoop, place: Place | None) -> list[ClusterTimes]:
    kernel, rows = unit.program.kernel, unit.program.rows
    length = len(loop.iteration)
    barriers = np.flatnonzero(rows[loop.iteration, cycle_program.UNIT] == cycle_program.BARRIER) + 1
    cuts = [0, *(int(cut) for cut in barriers if cut < length), length]
    spent = _cluster_cycles(unit, loop, len(cuts) - 1)
    executed = executions(unit)
    found = []
    for number, (first, after) in enumerate(pairwise(cuts)):
        mine = loop.iteration[first:after]
        stalls = unit.stalls[mine] / np.maximum(executed[mine], 1)[:, None]
        by_reason = stalls.sum(axis=0)
        offset = kernel.instructions[mine[0]].offset
        found.append(
            ClusterTimes(
                number=number,
                first=offset,
                last=kernel.instructions[mine[-1]].offset,
                instructions=len(mine),
                matrix=int((rows[mine, cycle_program.UNIT] == cycle_program.MATRIX).sum()),
                cycles=float(spent[number]),
                issuing=float(by_reason[cycle_state.ISSUED]),
                stalls={
                    cycle_state.REASONS[i]: float(by_reason[i])
                    for i in range(1, len(cycle_state.REASONS))
                    if by_reason[i] >= 0.5
                },
                place=str(place(offset)) if place else "",
            )
        )
    return found


def _cluster_cycles(unit: UnitTimes, loop: HotLoop, count: int) -> np.ndarray:
    """Cycles of each cluster, over the steady iterations with as many barriers as the typical."""
    wave = unit.waves[loop.wave]
    barrier = unit.program.rows[wave.rows, cycle_program.UNIT] == cycle_program.BARRIER
    found = []
    for first, after in pairwise(loop.starts[loop.steady]):
        cuts = np.flatnonzero(barrier[first:after]) + 1 + first
        edges = [first, *cuts[cuts < after], after]
        if len(edges) == count + 1:
            found.append(np.diff(wave.issued[edges]))
    return np.mean(found, axis=0) if found else np.zeros(count)


def executions(unit: UnitTimes) -> np.ndarray:
    """How often each row was executed, all waves."""
    rows = np.concatenate([wave.rows for wave in unit.waves])
    return np.bincount(rows, minlength=len(unit.program.rows))


def utilisation(unit: UnitTimes, loops: Sequence[HotLoop]) -> dict[str, float]:
    """Busy parts of the pipes while the first wave is in its steady state: matrix, vector and
    transcendental of the four SIMDs, LDS of the unit, issue slots of the SIMDs."""
    loop = loops[0]
    issued = unit.waves[loop.wave].issued[loop.starts[loop.steady]]
    begin, end = int(issued[0]), int(issued[-1])
    rows, machine = unit.program.rows, unit.machine
    totals = dict.fromkeys(("matrix", "vector", "transcendental", "LDS", "memory", "issue"), 0.0)
    dma = [is_lds_dma(ins) for ins in unit.program.kernel.instructions]
    moved = np.array([1024.0 if into else 0.0 for into in dma])
    for wave in unit.waves:
        inside = (wave.issued >= begin) & (wave.issued < end)
        mine = rows[wave.rows[inside]]
        kind = mine[:, cycle_program.UNIT]
        totals["matrix"] += float(mine[kind == cycle_program.MATRIX, cycle_program.BUSY].sum())
        totals["vector"] += float(mine[kind <= cycle_program.MATRIX, cycle_program.PORT].sum())
        totals["transcendental"] += float(
            mine[kind == cycle_program.TRANS, cycle_program.PORT].sum()
        )
        totals["LDS"] += float(wave.lds[inside].sum())
        totals["LDS"] += float(moved[wave.rows[inside]].sum()) / machine.lds_dma_bytes
        totals["issue"] += float(machine.slot * inside.sum())
    time = float(end - begin)
    each = {name: value / time for name, value in totals.items() if name != "memory"}
    for name in ("matrix", "vector", "transcendental", "issue"):
        each[name] /= GFX950.simds_per_cu
    return each


def loop_rows(unit: UnitTimes, loops: Sequence[HotLoop]) -> np.ndarray:
    """Rows of all hot loops, whichever way they were gone through."""
    each = [unit.waves[loop.wave].rows[loop.starts[0] : loop.ends] for loop in loops]
    return np.unique(np.concatenate(each))


def stall_parts(unit: UnitTimes, rows: np.ndarray) -> dict[str, float]:
    """Parts of the wave-cycles of `rows` by reason, issuing among them."""
    totals = unit.stalls[rows].sum(axis=0)
    whole = max(float(totals.sum()), 1.0)
    return {cycle_state.REASONS[i]: float(totals[i]) / whole for i in range(len(totals))}


def stall_lines(unit: UnitTimes, rows: np.ndarray, place: Place | None) -> tuple[StallLine, ...]:
    """The instructions at which waves stood, most cycles first; one entry a reason."""
    kernel = unit.program.kernel
    found = []
    for row in rows:
        for reason in range(1, len(cycle_state.REASONS)):
            cycles = int(unit.stalls[row, reason])
            if cycles:
                ins = kernel.instructions[row]
                where = (str(place(ins.offset)) if place else "") or f"{ins.offset:#x}"
                found.append(
                    StallLine(where, ins.offset, str(ins), cycle_state.REASONS[reason], cycles)
                )
    return tuple(sorted(found, key=lambda line: -line.cycles))
