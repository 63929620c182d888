"""Which findings have one cause: the same wait or s_nop is missing, perhaps in copies of the code.

A loop that is unrolled eight times and lacks a wait shows it wherever the wait's results are used.
That is one thing to repair, so it is one finding with all its places. So is a guess, with all that
rests on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from mlagen.audit.gfx950.findings import Finding, Place
from mlagen.severity import ASSUMED, resting


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
    kind = (finding.rule, finding.severity, finding.guess)
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


def _places(group: list[Finding]) -> tuple[Place, ...]:
    return tuple(place for finding in group for place in finding.places)


def _as_one(group: list[Finding]) -> Finding:
    first, others = group[0], group[1:]
    if not others:
        return first
    places = "place" if len(others) == 1 else "places"
    message = f"{first.message}; it shows in {len(others)} more {places}, up to {others[-1].pc:#x}"
    return replace(first, message=message, places=_places(group))
