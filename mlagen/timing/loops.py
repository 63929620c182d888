"""The hot loop of a wave, found in what it executed, and the tiles that an iteration does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mlagen.binary import KernelCode, MachineInstruction
from mlagen.binary.effects import TRANSCENDENTAL, is_matrix
from mlagen.errors import UnsupportedError
from mlagen.timing.unit import WaveTimes

FEWEST = 3  # iterations
_SPREAD = 0.25  # of an iteration's length: a branch inside, such as a rescaling that is not due
_SHARE = 0.35  # of the largest loop's instructions: an inner loop with that many is the hot one
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")


@dataclass(frozen=True, eq=False)
class HotLoop:
    """A wave's hot loop. `head`: row of its first instruction; `starts`: steps at which alike
    iterations begin that another one follows, in one run; `ends`: the step after the last.
    `iteration`: rows of a typical one. `tiles`: alike parts of it; an unrolled loop has several."""

    wave: int
    head: int
    starts: npt.NDArray[np.int64]
    ends: int
    iteration: npt.NDArray[np.int64]
    tiles: int

    @property
    def steady(self) -> slice:
        """Iterations that count: without the first ones (cold) and the last (it drains)."""
        count = len(self.starts)
        first = min(2, count // 3)
        return slice(first, max(count - 1, first + 2))

    def cycles(self, issued: npt.NDArray[np.int64]) -> float:
        """Cycles of an iteration in the steady state."""
        at = issued[self.starts[self.steady]]
        return float(at[-1] - at[0]) / (len(at) - 1)


def flops_of(ins: MachineInstruction) -> int:
    """Floating-point operations of a matrix instruction of a wave, 0 for all others."""
    if not is_matrix(ins):
        return 0
    shape = _SHAPE.search(ins.mnemonic)
    if shape is None:
        return 0
    m, n, k = map(int, shape.groups())
    blocks = re.search(r"_(\d+)b_", ins.mnemonic)
    if blocks is None and (m, n) == (4, 4):
        return 2 * m * n * k * 16
    return 2 * m * n * k * (int(blocks[1]) if blocks else 1)


def find_loop(kernel: KernelCode, wave: WaveTimes, tiles: int | None = None) -> HotLoop:
    """The hot loop of a wave: the innermost of the loops in which it spends its instructions.

    `tiles`: of an iteration, where the caller knows it. UnsupportedError when nothing repeats at
    least three times.
    """
    rows = wave.rows
    heads = np.unique(rows[1:][np.diff(rows) < 0])
    found: list[tuple[int, int, int]] = []  # length, instructions in alike iterations, head
    for head in heads:
        at = np.flatnonzero(rows == head)
        if len(at) <= FEWEST:
            continue
        lengths = np.diff(at)
        common = int(np.median(lengths))
        alike = np.abs(lengths - common) <= _SPREAD * common
        if alike.sum() >= FEWEST:
            found.append((common, int(lengths[alike].sum()), int(head)))
    if not found:
        raise UnsupportedError(
            f"kernel {kernel.name}: wave {wave.wave} has no loop of {FEWEST} alike iterations",
            hint="launch it on longer sequences",
        )
    most = max(total for _, total, _ in found)
    length, _, head = min(entry for entry in found if entry[1] >= _SHARE * most)
    at = np.flatnonzero(rows == head)
    lengths = np.diff(at)
    alike = np.abs(lengths - length) <= _SPREAD * length
    runs = np.split(np.arange(len(alike)), np.flatnonzero(~alike))
    run = max((r[alike[r]] for r in runs), key=len)
    starts = at[run]
    typical = int(run[np.argmin(np.abs(lengths[run] - np.median(lengths[run])))])
    iteration = rows[at[typical] : at[typical + 1]]
    parts = tiles or _parts(kernel, iteration)
    return HotLoop(wave.wave, head, starts, int(at[run[-1] + 1]), iteration, parts)


def _parts(kernel: KernelCode, iteration: npt.NDArray[np.int64]) -> int:
    """Into how many parts with the same matrix, LDS, transcendental and barrier instructions an
    iteration can be cut."""
    instructions = [kernel.instructions[row] for row in iteration]
    matrix = [i for i, ins in enumerate(instructions) if is_matrix(ins)]
    for parts in (8, 6, 4, 3, 2):
        if len(matrix) % parts or not matrix:
            continue
        each = len(matrix) // parts
        cuts = [matrix[i * each] for i in range(parts)]
        turned = instructions[cuts[0] :] + instructions[: cuts[0]]
        places = [cut - cuts[0] for cut in cuts] + [len(turned)]
        mixes = [_mix(turned[a:b]) for a, b in pairwise(places)]
        if all(_alike(mixes[0], mix) for mix in mixes[1:]):
            return parts
    return 1


def _mix(instructions: list[MachineInstruction]) -> Counter[str]:
    """Loads are left out: lists of pages are read for several tiles at a time."""
    mix: Counter[str] = Counter()
    for ins in instructions:
        if is_matrix(ins) or ins.encoding == "DS" or ins.mnemonic == "s_barrier":
            mix[ins.mnemonic] += 1
        elif ins.mnemonic in TRANSCENDENTAL:
            mix["transcendental"] += 1
    return mix


def _alike(a: Counter[str], b: Counter[str]) -> bool:
    """The same up to what hand-scheduling shifts over a cut: an eighth, at least one of four."""
    for key in a | b:
        most = max(a[key], b[key])
        shifted = 0 if key == "s_barrier" or most < 4 else max(1, most // 8)
        if abs(a[key] - b[key]) > shifted:
            return False
    return True
