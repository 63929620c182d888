"""A verdict as a value: what became of a mutant, of whichever target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

# What kills without a finding of the sanitizer or the audit.
NO_FINDINGS = ("values", "no end", "assembler", "decoder", "reader", "exact oracle",
               "rounding oracle", "exact LSE oracle", "rounding LSE oracle")  # fmt: skip


BY_LETTER = "only the letter of the ISA forbids it, and hardware is known to order it"


class Planted(Protocol):
    """What every mutant tells of itself."""

    @property
    def kind(self) -> str:
        """Its class: "waits", "values", …"""

    @property
    def operator(self) -> str:
        """How the text was changed: "removed", "count + 1", …"""

    @property
    def line(self) -> int:
        """Of the original text, from 1."""

    @property
    def name(self) -> str:
        """Unique among the mutants of one text, and fit for a file name."""

    @property
    def described(self) -> str:
        """Where it is and what was changed, for people."""

    def fields(self) -> dict[str, Any]:
        """All of it as plain values."""

    def apply(self, text: str) -> str:
        """The text with the defect in it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    `outcome`: "killed", "equivalent" or "missed". `by`: the kind of the finding, "values", "no end"
    or an oracle of a killed mutant; what an equivalent or missed one is told by. `located`: the
    mutated place lies between the two instructions of a finding. `why` is for people. `emulator`
    and `audit`: what each of them says, "" for nothing; None: it was not asked.
    """

    mutant: Planted
    outcome: str
    by: str
    why: str
    shape: str = ""
    mode: str = ""
    located: bool = False
    emulator: str | None = None
    audit: str | None = None

    @property
    def by_finding(self) -> bool:
        """Whether a checker itself saw it, whatever the values."""
        return self.outcome == "killed" and (self.by not in NO_FINDINGS or bool(self.audit))

    def fields(self) -> dict[str, Any]:
        """As plain values. What was not asked is left out."""
        told = {
            "outcome": self.outcome,
            "by": self.by,
            "why": self.why,
            "shape": self.shape,
            "mode": self.mode,
            "located": self.located,
            "mutant": self.mutant.fields(),
        }
        for judge in ("emulator", "audit"):
            if (said := getattr(self, judge)) is not None:
                told[judge] = said
        return told
