"""Which instructions of an artifact some run executed, and what the others are.

A result that is right says nothing about code that no run entered. So every verification counts:
the emulator tells how often each instruction ran, and the artifact's line map whose it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.artifact import Artifact, file_names
from mlagen.locate import Place, instructions_of


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Instructions that no run executed: neighbours of one operation, or a section as a whole, of
    which cluster and operation are "".

    `asm_line`: the first one's in the text; 0 without a line table. `schedule_line`: 0 for what no
    line of the schedule asked for, such as control flow.
    """

    role: str
    section: str
    cluster: str
    operation: str
    schedule_line: int
    asm_line: int
    instructions: int

    @property
    def place(self) -> str:
        """Section and cluster, with the role where it is not all of them."""
        role = self.role if self.role not in ("", "all") and "+" not in self.role else ""
        where = f"{role}: {self.section}" if role else self.section
        return f"{where}, cluster {self.cluster}" if self.cluster else where


@dataclass(frozen=True, slots=True)
class Coverage:
    """`reached` of `total` instructions ran at least once. `gaps`: the others, in text order.
    `text`: the name of the artifact's text, to which lines belong."""

    total: int
    reached: int
    gaps: tuple[CoverageGap, ...]
    text: str = "kernel.s"

    @property
    def complete(self) -> bool:
        """Whether every instruction ran."""
        return not self.gaps

    @property
    def verdict(self) -> str:
        """As the verdict's line says it."""
        return f"reached {self.reached} of {self.total} instructions"

    @property
    def of_one_call(self) -> str:
        """What one call of some shape reached, where it is not everything."""
        percent = min(round(100 * self.reached / self.total), 99)
        share = f"{self.reached} of {self.total} instructions ({percent} %)"
        return (
            f"{share}; --list-missed names the others, "
            "verify without --shape, --data and --sample runs them"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "instructions": self.total,
            "reached": self.reached,
            "not_reached": [dataclasses.asdict(gap) for gap in self.gaps],
        }

    COLUMNS = ("not covered", "operation", "instructions", "schedule", "text")

    def rows(self, schedule_file: str) -> list[tuple[str, ...]]:
        """One row a gap, under COLUMNS."""
        return [
            (
                gap.place,
                gap.operation or "all of it",
                str(gap.instructions),
                f"{schedule_file}:{gap.schedule_line}" if gap.schedule_line else "",
                f"{self.text}:{gap.asm_line}" if gap.asm_line else "",
            )
            for gap in self.gaps
        ]


def coverage_of(artifact: Artifact, executions: Iterable[Mapping[int, int]]) -> Coverage:
    """What runs of an artifact reached, from each one's executions by byte offset."""
    ran = {offset for counts in executions for offset, count in counts.items() if count}
    places = instructions_of(artifact)
    entered = {_named(place)[:2] for place in places if place.pc in ran}
    gaps: dict[tuple[Any, ...], list[Place]] = {}
    key: tuple[Any, ...] = ()
    before: Place | None = None
    for place in places:
        if place.pc in ran:
            before = None
            continue
        name = _named(place)
        if place.source is not None and name[:2] not in entered:
            key = name[:2]
        elif before is None or _named(before) != name:
            key = (place.pc,)
        gaps.setdefault(key, []).append(place)
        before = place
    missed = sum(map(len, gaps.values()))
    return Coverage(
        len(places),
        len(places) - missed,
        tuple(_gap(gap, whole=len(key) > 1) for key, gap in gaps.items()),
        file_names(artifact.manifest.target)[1],
    )


def _named(place: Place) -> tuple[str, str, str, str, int]:
    source = place.source
    if source is None:
        return ("", "", "", "", 0)
    return (source.role, source.section, source.cluster, source.operation, source.schedule_line)


def _gap(places: list[Place], *, whole: bool) -> CoverageGap:
    role, section, cluster, operation, line = _named(places[0])
    if whole:
        cluster, operation, line = "", "", 0
    return CoverageGap(role, section, cluster, operation, line, places[0].asm_line, len(places))
