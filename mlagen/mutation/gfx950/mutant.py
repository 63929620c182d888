"""A mutant as a value: lines of an artifact's text and what stands there instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.artifact import Artifact
from mlagen.mutation.gfx950.listing import InstructionLine, Listing, WaveRange
from mlagen.targets.gfx950.assemble import assemble


@dataclass(frozen=True)
class Mutant:
    """One defect.

    `edits`: line of the original text -> the lines that stand there instead (none: removed).
    `sections`: where the edited code lies. `unchanged`: why no access is ordered differently, where
    the text alone shows that; "" where it does not. `touches`: the resource whose wait, barrier or
    wait states are mutated, as findings name it.
    """

    kind: str  # "waits", "barriers", "nops", "swizzle"
    operator: str  # "count + 1", "removed", ...
    what: str  # "vmcnt(2) -> vmcnt(3)"
    line: int
    section: str
    cluster: str
    edits: Mapping[int, tuple[str, ...]]
    sections: tuple[str, ...]
    role: str = ""
    touches: str = ""
    unchanged: str = ""

    @property
    def name(self) -> str:
        """Unique among the mutants of one text, and fit for a file name."""
        parts = (self.kind, str(self.line), self.operator, self.role, self.what)
        joined = "-".join(part for part in parts if part)
        return "".join(c if c.isalnum() else "_" for c in joined)

    @property
    def place(self) -> str:
        return ", ".join(part for part in (self.section, self.cluster) if part)

    @property
    def described(self) -> str:
        """Where it is and what was changed, for people."""
        role = f", {self.role} waves" if self.role not in ("", "all") else ""
        both = ", all waves" if self.role == "all" else ""
        return f"line {self.line} ({self.place}): {self.what}, {self.operator}{role}{both}"

    def fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        told = dataclasses.asdict(self)
        told["edits"] = {str(line): list(lines) for line, lines in self.edits.items()}
        return {**told, "name": self.name}

    def apply(self, text: str) -> str:
        """The text with the defect in it."""
        return apply(text, self.edits)


def apply(text: str, edits: Mapping[int, tuple[str, ...]]) -> str:
    """The text with the edits made."""
    lines = text.split("\n")
    return "\n".join(
        line for number, original in enumerate(lines, 1) for line in edits.get(number, (original,))
    )


def assembled(artifact: Artifact, edits: Mapping[int, tuple[str, ...]]) -> bytes:
    """The code object of an artifact's text with the edits made; raises as `assemble` does."""
    manifest = artifact.manifest
    return assemble(
        apply(artifact.text, edits),
        file_name=f"{manifest.symbol}.s",
        source_lines={},  # lines have moved, and a mutant has no source of its own
        schedule_file=manifest.schedule_file,
        target=manifest.target,
    )


def original_line(edits: Mapping[int, tuple[str, ...]], number: int) -> int:
    """The line of the original text that line `number` of the mutated text comes from."""
    shift = 0
    for line in sorted(edits):
        start = line + shift
        if number < start:
            break
        if number < start + len(edits[line]):
            return line
        shift += len(edits[line]) - 1
    return number - shift


def mutant(
    listing: Listing,
    kind: str,
    operator: str,
    what: str,
    line: int,
    edits: Mapping[int, tuple[str, ...]],
    *,
    touches: str = "",
    unchanged: str = "",
) -> Mutant:
    """A mutant that stands at `line`, its place and sections read from the listing."""
    section, cluster = listing.place(line)
    lines: Iterable[int] = sorted({line, *edits})
    sections = tuple(dict.fromkeys(listing.lines[n].section for n in lines))
    return Mutant(
        kind, operator, what, line, section, cluster, dict(edits), sections, touches=touches,
        unchanged=unchanged,
    )  # fmt: skip


def replaced(
    listing: Listing,
    kind: str,
    operator: str,
    what: str,
    line: InstructionLine,
    code: str,
    **more: str,
) -> Mutant:
    """A mutant of one line, which has `code` instead; "" removes it. `more`: of `mutant`."""
    edits: dict[int, tuple[str, ...]] = {line.number: (f"  {code}",) if code else ()}
    return mutant(listing, kind, operator, what, line.number, edits, **more)


def only(listing: Listing, role: WaveRange, code: str, label: str) -> tuple[str, ...]:
    """`code` for the waves of one role, by a compare and a branch round it.

    The compare overwrites SCC: `require_free_scc` says why that is safe at the ends of clusters.
    Raises ValueError for roles that are not the lower and the upper half of a split.
    """
    roles = sorted(listing.roles, key=lambda r: r.first)
    if len(roles) != 2 or roles[0].first != 0 or roles[0].last + 1 != roles[1].first:
        raise ValueError(f"roles {roles} are not two halves")
    branch = "s_cbranch_scc0" if role == roles[0] else "s_cbranch_scc1"
    return (
        f"  s_cmp_lt_u32 s[WAVE], {roles[1].first}",
        f"  {branch} {label}",
        f"  {code}",
        f"{label}:",
    )
