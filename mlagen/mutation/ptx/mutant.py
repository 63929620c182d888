"""A mutant of PTX as a value: places of a text and what stands there instead."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextEdit:
    """`text` instead of the characters `start` .. `stop`; the same for an insertion. Lines keep
    their numbers: what is shorter in lines is filled up."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class PtxMutant:
    """One defect. `index`: the instruction that is changed, in its entry's text, from 0; `removed`:
    it is gone. `before` and `after` are its text. `schedule_line`: 0 where no manifest tells one.
    `excuse`: why the change alters nothing, where the text alone tells; "" where it does not."""

    kind: str  # "waits", "fences", …
    operator: str  # "removed", "the other parity", …
    index: int
    line: int
    before: str
    after: str
    edits: tuple[TextEdit, ...]
    place: str = ""  # "left, loop, cluster B: pv(i)"
    schedule_line: int = 0
    excuse: str = ""

    @property
    def removed(self) -> bool:
        """Whether the instruction is gone, and nothing else changed."""
        return len(self.edits) == 1 and not self.edits[0].text

    @property
    def name(self) -> str:
        """Unique among the mutants of one text, and fit for a file name."""
        after = self.after if len(self.after) < 40 else f"{hash_of(self.after)}"
        parts = (self.kind, str(self.line), str(self.index), self.operator, after)
        joined = "-".join(part for part in parts if part)
        return "".join(c if c.isalnum() else "_" for c in joined)

    @property
    def described(self) -> str:
        """Where it is and what was changed, for people."""
        where = f" ({self.place})" if self.place else ""
        schedule = f", schedule line {self.schedule_line}" if self.schedule_line else ""
        return f"line {self.line}{where}{schedule}: {shortened(self.before)}, {self.operator}"

    def fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        told = dataclasses.asdict(self)
        told["edits"] = [list(dataclasses.astuple(edit)) for edit in self.edits]
        return {**told, "name": self.name}

    def apply(self, text: str) -> str:
        """The text with the defect in it."""
        return applied(text, self.edits)


def applied(text: str, edits: Sequence[TextEdit]) -> str:
    """A text with edits made; they do not overlap."""
    for edit in sorted(edits, key=lambda e: (e.start, e.stop), reverse=True):
        lost = text.count("\n", edit.start, edit.stop) - edit.text.count("\n")
        text = text[: edit.start] + edit.text + "\n" * max(lost, 0) + text[edit.stop :]
    return text


def shortened(text: str, most: int = 90) -> str:
    """One line of a text, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def hash_of(text: str) -> str:
    """Eight digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
