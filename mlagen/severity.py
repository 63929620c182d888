"""How much a finding weighs: the same words in the audits and emulators of every target.

    error      certain: the kernel is wrong on hardware, on a path that can happen
    unproved   rests on a guess, or on what the checker cannot know
    letter     only the text of the ISA forbids it and hardware is known to order it; or a doubt
               about hardware that no document settles
    advice     costs speed only

A guess is named once: all that rests on it is one finding, with the places of all. A rule says so
where it makes a finding (`guess=` of both audits' `Finding.at`); where no rule is broken yet, the
audits have `assumed` for a place that rests on a guess (`Finding.assumed` of gfx950's,
`Notes.assume` of PTX's). The audits put together what has the same guess, word for word; so a guess
names no place, and says what would settle it:

    "the CTA cluster has 2 blocks (--cluster or --launch tells)"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol, TypeVar

Severity = Literal["error", "unproved", "letter", "advice"]
ERROR: Final = "error"
UNPROVED: Final = "unproved"
LETTER: Final = "letter"
ADVICE: Final = "advice"
SEVERITIES: Final[tuple[Severity, ...]] = (ERROR, UNPROVED, LETTER, ADVICE)  # gravest first
ASSUMED: Final = "assumed"  # the rule of a finding that rests on a guess and breaks no rule
_NOUNS = {
    ERROR: ("error", "errors"),
    UNPROVED: ("unproved", "unproved"),
    LETTER: ("by the letter", "by the letter"),
    ADVICE: ("piece of advice", "pieces of advice"),
}


class Weighed(Protocol):
    """What has a severity."""

    @property
    def severity(self) -> Severity:
        """How much it weighs."""


_T = TypeVar("_T", bound=Weighed)


def rank(severity: Severity) -> int:
    """0 for the gravest."""
    return SEVERITIES.index(severity)


def of(findings: Iterable[_T], *severities: Severity) -> tuple[_T, ...]:
    """The findings of some severities, in their order."""
    return tuple(finding for finding in findings if finding.severity in severities)


def any_error(findings: Iterable[Weighed]) -> bool:
    """Whether one of them is an error."""
    return any(finding.severity == ERROR for finding in findings)


def failing(findings: Iterable[_T], fail_on: Severity = ERROR) -> tuple[_T, ...]:
    """The findings that a command fails on: errors; with `fail_on` LETTER those by the letter,
    too. What is unproved is no defect that was found."""
    return of(findings, ERROR, LETTER) if fail_on == LETTER else of(findings, ERROR)


def counted(findings: Sequence[Weighed]) -> str:
    """`2 errors, 1 unproved, 3 by the letter`; `0` where there is nothing."""
    if not findings:
        return "0"
    numbers = Counter(finding.severity for finding in findings)
    told = [
        f"{numbers[severity]} {_NOUNS[severity][numbers[severity] != 1]}"
        for severity in SEVERITIES
        if numbers[severity] or severity == ERROR
    ]
    return ", ".join(told)


def resting(guess: str, rules: Iterable[str]) -> str:
    """What rests on a guess, in words. `rules`: of each finding that does, ASSUMED for a place
    that breaks none."""
    numbers = Counter(rules)
    places = numbers.pop(ASSUMED, 0)
    told = [f"{number} {rule}" for rule, number in sorted(numbers.items())]
    total = sum(numbers.values())
    if total:
        noun = "finding rests" if total == 1 else "findings rest"
        return f"{guess}; {total} {noun} on it ({', '.join(told)})"
    return f"{guess}; {places} places rest on it" if places > 1 else guess
