"""What a command that judges makes of findings: which of them it fails on, and what it says of what
it could not show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol

import click

from mlagen.errors import UnprovedError
from mlagen.severity import ADVICE, ERROR, LETTER, UNPROVED, Severity, of

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice([LETTER, ERROR]),
    default=ERROR,
    show_default=True,
    help="Findings that make the exit code 4: errors, or those by the letter of the ISA too.",
)

_STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Exit code 6 where something is unproved or unchecked, and nothing is wrong.",
)


@dataclass(frozen=True)
class Demand:
    """What a command line demands of a kernel. `fail_on`: the least severity that fails; `strict`:
    nothing may be unproved or unchecked either."""

    fail_on: Severity = ERROR
    strict: bool = False

    def require_proved(self, unproved: int, unchecked: int) -> None:
        """Where it is strict, UnprovedError for a guess or a gap that is left."""
        if self.strict and (unproved or unchecked):
            raise UnprovedError(
                f"nothing is wrong, and not all is shown: {unproved} unproved, "
                f"{unchecked} unchecked",
                hint="without --strict this ends with exit code 0",
            )


class Told(Protocol):
    """A finding of either audit."""

    @property
    def rule(self) -> str:
        """What it breaks."""

    @property
    def severity(self) -> Severity:
        """How much it weighs."""


def line_of(file: str, findings: Sequence[Told], unchecked: int, more: str = "") -> str:
    """A file's audit in a line: errors by rule, and how many of the rest. "clean" only where
    nothing is left open."""
    rules = Counter(finding.rule for finding in of(findings, ERROR))
    others = Counter(finding.severity for finding in findings)
    nothing = "no error" if others[LETTER] else "clean"
    if unchecked or others[UNPROVED]:
        nothing = "nothing found, not all covered"
    told = ", ".join(f"{number} {rule}" for rule, number in sorted(rules.items())) or nothing
    less = [f"{others[severity]} {severity}" for severity in (UNPROVED, LETTER, ADVICE)
            if others[severity] or severity == ADVICE]  # fmt: skip
    return f"{file}: {told}; {', '.join(less)}, {unchecked} unchecked{more}"


def demand_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--fail-on`, `--strict`: one argument, `demand`."""

    @wraps(function)
    def command(*, fail_on: Severity, strict: bool, **others: Any) -> Any:
        return function(demand=Demand(fail_on, strict), **others)

    return fail_on_option(_STRICT(command))
