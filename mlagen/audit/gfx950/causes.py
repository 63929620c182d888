"""Which findings have one cause: the same wait or s_nop is missing, perhaps in copies of the code.

A loop that is unrolled eight times and lacks a wait shows it wherever the wait's results are used.
That is one thing to repair, so it is one finding with all its places. So is a guess, with all that
rests on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from mlagen.audit.gfx950.findings import Finding, InstructionPair
from mlagen.binary.instruction import MachineInstruction
from mlagen.severity import ASSUMED, resting

_AROUND = 1  # instruction on either side that is the same in copies of the code
_SHOWN = 4  # copies of which the place is told


def together(findings: Iterable[Finding]) -> list[Finding]:
    """Findings put together by cause, each as the first of its places in the code tells it.

    One cause have those of one rule and severity where instructions of the same name come too early
    after instructions of the same name, or after the same instruction.
    """
    ordered = sorted(findings, key=lambda finding: finding.pc)
    group_of: list[int] = []
    known: dict[Hashable, int] = {}
    for number, finding in enumerate(ordered):
        group_of.append(number)
        for key in _keys(finding):
            before = known.setdefault(key, number)
            _join(group_of, before, number)
    groups: dict[int, list[Finding]] = {}
    for number, finding in enumerate(ordered):
        groups.setdefault(_root(group_of, number), []).append(finding)
    return [_as_one(group) for group in groups.values()]


def _keys(finding: Finding) -> Iterable[Hashable]:
    kind: tuple[object, ...] = (finding.rule, finding.severity, finding.guess)
    if finding.changes:
        yield (*kind, finding.changes, finding.counter)
        return
    yield (*kind, _name(finding.asm), _name(finding.other_asm))
    yield (*kind, finding.other_pc)


def _name(asm: str) -> str:
    return asm.split(" ", 1)[0].removesuffix("_e32").removesuffix("_e64")


def _root(group_of: list[int], number: int) -> int:
    while group_of[number] != number:
        group_of[number] = group_of[group_of[number]]
        number = group_of[number]
    return number


def _join(group_of: list[int], one: int, other: int) -> None:
    first, second = sorted((_root(group_of, one), _root(group_of, other)))
    group_of[second] = first


def by_wait(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with one in the place of all that one wait causes: that which asks for most.
    Its count mends all of them."""
    kept: list[Finding] = []
    of_wait: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        if not finding.changes:
            kept.append(finding)
        else:
            key = (finding.severity, finding.guess, finding.changes, finding.counter)
            of_wait.setdefault(key, []).append(finding)
    return kept + [_by_one_wait(group) for group in of_wait.values()]


def _by_one_wait(group: list[Finding]) -> Finding:
    group.sort(key=lambda finding: (finding.count, finding.pc))
    first = group[0]
    message = first.message
    if len(group) > 1:
        rules = Counter(finding.rule for finding in group[1:])
        more = ", ".join(f"{number} {rule}" for rule, number in sorted(rules.items()))
        message += f"; this wait causes {more} besides"
    return replace(first, message=message, places=_places(group))


def by_copy(findings: Iterable[Finding], code: Sequence[MachineInstruction]) -> list[Finding]:
    """The findings, with one in the place of those that copies of the same code show: a loop that
    is unrolled lacks a wait or a barrier in each round. Copies of a wait stand between the same
    instructions and lack the same; where a barrier lacks, the two that race are of the same names.
    """
    index_of = {ins.offset: index for index, ins in enumerate(code)}

    def around(pc: int) -> tuple[str, ...]:
        at = index_of[pc]
        return tuple(ins.mnemonic for ins in code[max(at - _AROUND, 0) : at + _AROUND + 1])

    groups: dict[tuple[object, ...], list[Finding]] = {}
    for number, finding in enumerate(findings):
        places: tuple[object, ...] = (_name(finding.asm), _name(finding.other_asm))
        if finding.other_pc is None:
            places = (number,)  # of one instruction: each is to be looked at
        if finding.changes:
            places = (around(finding.changes[0]), finding.needs)
        key = (finding.rule, finding.severity, finding.guess, *places)
        groups.setdefault(key, []).append(finding)
    return [_of_copies(group) for group in groups.values()]


def _of_copies(group: list[Finding]) -> Finding:
    def place(finding: Finding) -> int:
        return finding.changes[0] if finding.changes else finding.pc

    first, *others = sorted(group, key=place)
    if not others:
        return first
    copies = "copy" if len(others) == 1 else "copies"
    at = [place(finding) for finding in others]
    shown = ", ".join(f"{pc:#x}" for pc in at[:_SHOWN]) + ", …" * (len(at) > _SHOWN)
    message = f"{first.message}; so in {len(others)} more {copies} of this code ({shown})"
    changes = tuple(pc for finding in (first, *others) for pc in finding.changes)
    return replace(first, message=message, places=_places(group), changes=changes)


def by_guess(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with one in the place of all that rest on the same guess."""
    kept: list[Finding] = []
    resting_on: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.guess:
            resting_on.setdefault(finding.guess, []).append(finding)
        else:
            kept.append(finding)
    return kept + [_guessed(group) for group in resting_on.values()]


def _guessed(group: list[Finding]) -> Finding:
    # What breaks a rule tells more than a place that does not.
    group.sort(key=lambda finding: (finding.rule == ASSUMED, finding.pc))
    first = group[0]
    rules = [place.rule for finding in group for place in finding.places]
    broken = {*rules} - {ASSUMED}
    told = resting(first.guess, rules)
    if broken:
        told = f"{told}, first: {first.message}"
    rule = first.rule if len(broken) < 2 else ASSUMED
    return replace(first, rule=rule, message=told, places=_places(group))


def _places(group: list[Finding]) -> tuple[InstructionPair, ...]:
    return tuple(place for finding in group for place in finding.places)


def _as_one(group: list[Finding]) -> Finding:
    if group[0].changes:
        group.sort(key=lambda finding: (finding.count, finding.pc))
    first, others = group[0], group[1:]
    if not others:
        return first
    places = "place" if len(others) == 1 else "places"
    message = f"{first.message}; it shows in {len(others)} more {places}, up to {others[-1].pc:#x}"
    return replace(first, message=message, places=_places(group))
