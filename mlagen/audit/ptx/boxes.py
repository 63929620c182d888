"""Bytes of tensor maps' boxes, which PTX does not tell: solved from what the kernel expects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np

from mlagen.audit.ptx.cta import Cta
from mlagen.audit.ptx.paths import Fork, Path, Stuck
from mlagen.audit.ptx.program import EntryProgram, Setting
from mlagen.audit.ptx.report import Finding, Notes
from mlagen.audit.ptx.state import PathsSeen
from mlagen.ptx import Instruction, Kind

# A box's inner extent is a multiple of 16 bytes (PTX ISA 9.0, tensors; cuTensorMapEncodeTiled).
UNIT = 16
_PATHS = ((False,) * 4, (False,) * 3, (False,) * 2, (False,), ())
_TRIPS = 8
_FEW = 2  # rounds, and decisions, where a path of more does not end
_LONG = 20_000  # steps of a path, after which no more are followed than it takes
GUESS = "boxes of tensor maps were taken to be as large as there is room (--box tells)"
_MOST = 24  # paths that are searched for what a box brings


@dataclass(frozen=True, slots=True)
class _Equation:
    """A phase's copies of unknown size bring `size` bytes together."""

    size: int
    names: tuple[str, ...]
    at: Instruction


def solve(program: EntryProgram, setting: Setting, notes: Notes) -> Setting:
    """The setting with every box known. What solves no box is told as a finding."""
    found, seen = _equations(program, setting)
    setting = _of_stores(setting, seen, notes)
    unknown = sorted({name for one in found for name in one.names})
    if not unknown:
        return setting
    for one in found:
        if one.size % UNIT or one.size <= 0:
            notes.add(_finding(program, one, "are no whole number of 16-byte units of boxes"))
    boxes = _least_squares(found, unknown, seen)
    wrong = [one for one in found if sum(boxes[name] for name in one.names) != one.size]
    if wrong and _open_ended(found, unknown):
        # Many boxes fit, and the nearest is none: smaller ones reach nothing that is not theirs.
        notes.assume(GUESS)
        boxes = _smaller(found, unknown, seen)
    elif wrong and not notes.wrong:
        shown = ", ".join(f"{name} = {size}" for name, size in boxes.items())
        notes.add(_finding(program, wrong[0], f"do not fit what the other phases expect ({shown})"))
    shown = ", ".join(f"{name} = {size}" for name, size in boxes.items())
    notes.gap(
        "byte counts of the tensor copies: PTX does not tell a box's size. Taken from what the"
        f" kernel expects: {shown}"
    )
    return replace(setting, boxes={**setting.boxes, **boxes}, guessed=bool(wrong))


def _of_stores(setting: Setting, seen: PathsSeen, notes: Notes) -> Setting:
    """The setting with boxes of maps that several stores use: they lie next to each other."""
    boxes = {
        name: min(b - a for a, b in pairwise(sorted(starts)))
        for name, starts in seen.sources.items()
        if len(starts) > 1 and name not in setting.boxes
    }
    if boxes:
        shown = ", ".join(f"{name} = {size}" for name, size in sorted(boxes.items()))
        notes.gap(
            "byte counts of the tensor stores: PTX does not tell a box's size. Taken from the"
            f" distance of neighbouring ones: {shown}"
        )
    return replace(setting, boxes={**setting.boxes, **boxes})


def _equations(program: EntryProgram, setting: Setting) -> tuple[list[_Equation], PathsSeen]:
    """What phases expect, on a few paths that some parameters take."""
    seen = PathsSeen()
    found: dict[tuple[int, tuple[str, ...], int], _Equation] = {}
    asked = len(_PATHS[0]) + 1  # decisions of the path before
    trips = _TRIPS
    for prefix in _PATHS:
        if len(prefix) >= asked:
            continue  # it is that path
        before = len(seen.equations)
        cta = Cta.begin(program, replace(setting, solve=True), Path(prefix, trips), seen)
        try:
            cta.run()
        except Stuck:
            if trips == _FEW:
                break
            # What comes after many rounds comes after few, as stores do.
            trips, asked = _FEW, _FEW
            continue
        asked = len(cta.state.path.taken)
        if not cta.state.path.possible():
            del seen.equations[before:]
        if not _copies(program) or (seen.targets and not _open(setting, seen)):
            break
        if cta.state.steps > _LONG and not _wants_more(program, setting, seen):
            break
    if _wants_more(program, setting, seen):
        _search(program, replace(setting, solve=True), seen)
    for size, names, at in seen.equations:
        if names:
            found.setdefault((size, tuple(sorted(names)), at.line), _Equation(size, names, at))
    return list(found.values()), seen


def _copies(program: EntryProgram) -> bool:
    """Whether a kernel has copies of boxes, or of sizes that may be unknown."""
    return Kind.BULK_LOAD in program.graph.kinds


def _open(setting: Setting, seen: PathsSeen) -> set[str]:
    """Boxes that nobody told."""
    return set(seen.targets) - set(setting.boxes)


def _wants_more(program: EntryProgram, setting: Setting, seen: PathsSeen) -> bool:
    """Whether no path so far had a copy, or none waited for some box."""
    if not seen.targets:
        return _copies(program) and not setting.boxes
    return bool(_open(setting, seen) - _named(seen))


def _named(seen: PathsSeen) -> set[str]:
    """Boxes that some phase expects."""
    return {name for _, names, _ in seen.equations for name in names}


def _search(program: EntryProgram, setting: Setting, seen: PathsSeen) -> None:
    """Other paths, until there is one on which each box is waited for."""
    stack = [Cta.begin(program, setting, Path((), _TRIPS, forking=True), seen)]
    runs = 0
    while stack and runs < _MOST and _wants_more(program, setting, seen):
        cta = stack.pop()
        before = len(seen.equations)
        try:
            cta.run()
        except Fork as fork:
            if cta.state.path.possible():
                other = cta.clone()
                cta.state.path.choose(not fork.first)
                other.state.path.choose(fork.first)
                stack += [other, cta]  # the longer way first: it waits
            continue
        except Stuck:
            pass
        runs += 1
        if not cta.state.path.possible():
            del seen.equations[before:]


def _least_squares(found: list[_Equation], unknown: list[str], seen: PathsSeen) -> dict[str, int]:
    """A box ends before the next thing in shared memory; among the solutions, the nearest to
    that, in whole units."""
    taken = reduce(lambda a, b: a | b, seen.targets.values(), set(seen.barriers))
    room = np.array([_room(seen.targets.get(name, set()), taken) for name in unknown], float)
    matrix = np.array([[one.names.count(name) for name in unknown] for one in found], float)
    sizes = np.array([one.size for one in found], float)
    solution = room + np.linalg.pinv(matrix) @ (sizes - matrix @ room)
    return {name: max(round(x / UNIT), 1) * UNIT for name, x in zip(unknown, solution, strict=True)}


def _open_ended(found: list[_Equation], unknown: list[str]) -> bool:
    """Whether what phases expect leaves a box open."""
    matrix = [[one.names.count(name) for name in unknown] for one in found]
    return int(np.linalg.matrix_rank(np.array(matrix, float))) < len(unknown)


def _smaller(found: list[_Equation], unknown: list[str], seen: PathsSeen) -> dict[str, int]:
    """Boxes in proportion to their room, so that no phase gets more than it expects."""
    taken = reduce(lambda a, b: a | b, seen.targets.values(), set(seen.barriers))
    room = {name: _room(seen.targets.get(name, set()), taken) for name in unknown}
    share = min(one.size / max(sum(room[name] for name in one.names), 1) for one in found)
    return {name: max(int(size * min(share, 1)) // UNIT, 1) * UNIT for name, size in room.items()}


def _room(starts: set[int], taken: set[int]) -> int:
    """Bytes from each start to the next thing, the least of them."""
    return min(
        (min((t - start for t in taken if t > start), default=1 << 20) for start in starts),
        default=0,
    )


def _finding(program: EntryProgram, one: _Equation, what: str) -> Finding:
    message = f"the {one.size} bytes of {', '.join(sorted(one.names))} {what}"
    needs = "the bytes that the phase's copies bring"
    return Finding.at("mbarrier-transaction", program.entry.name, one.at, message, needs=needs)
