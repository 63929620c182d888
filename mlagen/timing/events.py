"""What happened in a window of cycles: instructions of each wave, the matrix units, waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.errors import ConfigError
from mlagen.targets.gfx950.limits import GFX950
from mlagen.timing import cycle_program
from mlagen.timing.loops import HotLoop
from mlagen.timing.model import Place, ScheduleSource
from mlagen.timing.unit import UnitTimes


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """`cycles` from cycle `start` on; `track`: a wave, or a SIMD's matrix unit."""

    track: str
    unit: str
    row: int
    start: int
    cycles: int


def steady_window(unit: UnitTimes, loop: HotLoop, iterations: int = 2) -> tuple[int, int]:
    """Cycles of some iterations in the steady state of a wave."""
    starts = unit.waves[loop.wave].issued[loop.starts]
    first = max(0, min(loop.steady.start, len(starts) - 1 - iterations))
    last = min(first + iterations, len(starts) - 1)
    return int(starts[first]), int(starts[last])


def parse_window(text: str) -> tuple[int, int]:
    """`FIRST:LAST` in cycles. ConfigError for anything else."""
    first, colon, last = text.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        raise ConfigError(f"--window {text} is no FIRST:LAST", hint="cycles, such as 20000:28000")
    return int(first), int(last)


def events(unit: UnitTimes, window: tuple[int, int], limit: int) -> list[TimedEvent]:
    """All events that start in a window. ConfigError where there are more than `limit`."""
    rows, slot = unit.program.rows, unit.machine.slot
    chosen = [
        np.flatnonzero((wave.issued >= window[0]) & (wave.issued < window[1]))
        for wave in unit.waves
    ]
    total = sum(len(steps) for steps in chosen)
    if total > limit:
        pairs = zip(unit.waves, chosen, strict=True)
        at = np.sort(np.concatenate([wave.issued[steps] for wave, steps in pairs]))
        raise ConfigError(
            f"cycles {window[0]} to {window[1]} hold {total} instructions; a browser is given at "
            f"most {limit}",
            hint=f"--window {window[0]}:{int(at[limit])}",
        )
    found = []
    for number, (wave, steps) in enumerate(zip(unit.waves, chosen, strict=True)):
        for step in steps:
            row, start = int(wave.rows[step]), int(wave.issued[step])
            kind = int(rows[row, cycle_program.UNIT])
            port = int(rows[row, cycle_program.PORT]) if kind <= cycle_program.MATRIX else slot
            found.append(
                TimedEvent(_wave(unit, number), cycle_program.UNITS[kind], row, start, port)
            )
            if kind == cycle_program.MATRIX:
                track = f"matrix unit of SIMD {number % GFX950.simds_per_cu}"
                busy = int(rows[row, cycle_program.BUSY])
                found.append(TimedEvent(track, "matrix", row, start, busy))
    return found


def _wave(unit: UnitTimes, number: int) -> str:
    wave = unit.waves[number]
    group = f"workgroup {wave.workgroup}, " if unit.workgroups > 1 else ""
    return f"{group}wave {wave.wave} (SIMD {number % GFX950.simds_per_cu})"


def source_of(unit: UnitTimes, row: int, place: Place | None) -> tuple[str, ScheduleSource]:
    """An instruction's text, and where it comes from: its offset where nobody knows more."""
    ins = unit.program.kernel.instructions[row]
    source = place(ins.offset) if place else ScheduleSource()
    return str(ins), source if source.where else ScheduleSource(hex(ins.offset))
