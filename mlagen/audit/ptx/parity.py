"""Waits for the wrong phase of an mbarrier: which wait has the wrong parity, and what it has to be.

A wrong parity shows where it does harm, which may be anywhere: a wait that is never satisfied in
another role, data that is read too early. So each wait of a path that went wrong is tried with the
other parity: the one with which such paths, and one that was right, have no error is to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlagen.audit.ptx.boxes import solve
from mlagen.audit.ptx.cta import Cta
from mlagen.audit.ptx.paths import Fork, Path, Stuck
from mlagen.audit.ptx.program import EntryProgram, Setting
from mlagen.audit.ptx.report import Finding, Notes
from mlagen.audit.ptx.state import PathsSeen, State
from mlagen.ptx import Instruction
from mlagen.severity import ERROR

# What a wrong parity leads to.
_RULES = frozenset(
    ("deadlock", "mbarrier-transaction", "mbarrier-arrivals", "mbarrier-order", "mbarrier-overrun",
     "smem-raw", "smem-war", "smem-waw", "copy-unwaited")
)  # fmt: skip
_BY_BOXES = frozenset(("mbarrier-transaction", "deadlock"))  # where the bytes are not known
_PATHS = 3  # that are tried
_LONGER = ((1, 2), (3, 4))  # decisions of a path, and rounds
_STEPS = 400_000  # of all trials together


@dataclass(frozen=True, slots=True)
class Tried:
    """A path: how it is followed again, its errors, which a wrong parity may be the cause of, and
    the first parity that each wait had on it, by its index."""

    setting: Setting
    path: Path
    findings: tuple[Finding, ...]
    parities: dict[int, int]
    steps: int


@dataclass(slots=True)
class Trials:
    """The paths of a kernel that tell which wait is at fault: those that went wrong, and the
    longest one that went right."""

    wrong: list[Tried] = field(default_factory=list)
    right: Tried | None = None

    def add(self, setting: Setting, state: State) -> None:
        """A path that was followed to its end."""
        errors = tuple(f for f in state.findings if f.severity == ERROR)
        if not state.parities or any(f.rule not in _RULES for f in errors):
            return
        if not errors and self.right is not None and self.right.steps >= state.steps:
            return
        path = state.path
        again = Path(tuple(path.taken), path.trips, fixed=path.fixed, bounds=path.bounds)
        tried = Tried(setting, again, errors, dict(state.parities), state.steps)
        if errors:
            self.wrong.append(tried)
        else:
            self.right = tried


def blame(program: EntryProgram, trials: Trials, notes: Notes) -> None:
    """Names the wait to change in the findings of paths that went wrong, where there is one."""
    paths = sorted(trials.wrong, key=lambda one: one.steps)[:_PATHS]
    if not paths:
        return
    waits = sorted(set.intersection(*(set(one.parities) for one in paths)))
    first = paths[0]
    # A path that goes on further may be one that nothing takes; so long ones are tried as well.
    paths += [trials.right] if trials.right else []
    paths += [replace(first, path=Path((False,) * length, rounds)) for length, rounds in _LONGER]
    left, shown = _STEPS, set[int]()
    for one in paths:  # the shortest first: few waits are left for the others
        left -= one.steps * len(waits)
        if left < 0:
            return
        mended = {at: _mends(program, one, at) for at in waits}
        waits = [at for at in waits if mended[at] is not False]
        shown |= {at for at in waits if mended[at]} if one is not trials.right else set()
    waits = [at for at in waits if at in shown]
    if not waits:
        return
    instructions = [program.entry.instructions[at] for at in waits]
    parities = [first.parities[at] for at in waits]
    told = _told(instructions, parities)
    needs = _needed(instructions[0], parities[0])
    of = {_key(finding) for one in trials.wrong for finding in one.findings}
    for key, finding in notes.found.items():
        if finding.severity == ERROR and _key(finding) in of:
            message = f"{finding.message}; {told}"
            # Of several, nothing tells which one it is.
            named = {"needs": needs, "change": instructions[0].line} if len(waits) == 1 else {}
            notes.found[key] = replace(finding, message=message, **named)  # type: ignore[arg-type]


def _key(finding: Finding) -> tuple[str, int, int]:
    return finding.rule, finding.line, finding.other_line


def _mends(program: EntryProgram, tried: Tried, wait: int) -> bool | None:
    """Whether a path has no error with the other parity at one wait; None where no values take it
    then, so that it tells nothing."""
    setting = replace(tried.setting, flipped=wait)
    path, found = _errors(program, setting, tried.path)
    if {one.rule for one in found or ()} & _BY_BOXES:
        # A path that went wrong early may have told no boxes, or others.
        setting = replace(setting, boxes=setting.told, guessed=False)
        solved = solve(program, setting, Notes(program.entry.name))
        if solved.boxes != setting.boxes:
            path, found = _errors(program, solved, tried.path)
    return None if found is None or (found and not path.possible()) else not found


def _errors(
    program: EntryProgram, setting: Setting, path: Path
) -> tuple[Path, tuple[Finding, ...] | None]:
    """A path as it was followed, and its errors; None where it does not end."""
    cta = Cta.begin(program, setting, path.clone(), PathsSeen())
    try:
        cta.run()
    except (Fork, Stuck):
        return path, None
    return cta.state.path, tuple(f for f in cta.state.findings if f.severity == ERROR)


def _needed(wait: Instruction, parity: int) -> str:
    """What the wait to change has to say."""
    if wait.operands[2] == parity:
        return f"parity {parity ^ 1}"
    return f"the other parity each time, first {parity ^ 1}"


def _told(waits: Sequence[Instruction], parities: Sequence[int]) -> str:
    """`the wait at line 40 has parity 1 first and must have 0`."""
    each = [
        f"the wait at line {wait.line} has parity {parity} first, and must have {parity ^ 1}"
        for wait, parity in zip(waits, parities, strict=True)
    ]
    return ", or ".join(each)
