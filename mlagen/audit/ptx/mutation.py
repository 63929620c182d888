"""How much the audit sees: each synchronisation of a kernel removed or altered, then audited.

A mutant is reported, missed, equivalent, told by the letter alone, or not judged, where no path of
the kernel is followed: then silence says nothing. Only an error reports it; what is unproved does
not. Equivalence is claimed only for a reason that is told with
it, and never because the audit is silent: a fence that showed asynchronous accesses nothing new, an
arrival that no wait is for, or, on every path, the same accesses in which each read sees the same
write and every conflicting pair is still ordered.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from mlagen.audit.ptx.changes import Change, changes
from mlagen.audit.ptx.check import Given, audit_module
from mlagen.audit.ptx.report import EntryReport, Evidence, Finding
from mlagen.errors import FindingsError
from mlagen.ptx import Kind, Module, read_ptx
from mlagen.ptx.effects import kind_of
from mlagen.severity import ERROR, LETTER, of

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One change and what the audit said to it."""

    function: str
    line: int
    change: str
    before: str
    after: str
    rules: tuple[str, ...] = ()  # of errors
    letter: tuple[str, ...] = ()  # of findings by the letter of the ISA alone
    excuse: str = ""  # why the change alters nothing
    unjudged: str = ""  # why silence says nothing

    @property
    def outcome(self) -> str:
        """`reported`, `equivalent`, `by the letter`, `not judged` or `MISSED`."""
        if self.rules:
            return "reported"
        if self.excuse:
            return "equivalent"
        if self.letter:
            return "by the letter"
        return "not judged" if self.unjudged else "MISSED"


@dataclass(frozen=True, slots=True)
class MutationReport:
    """All mutants of a file."""

    mutants: tuple[AuditedChange, ...]

    def count(self, outcome: str) -> int:
        """Mutants of an outcome."""
        return sum(mutant.outcome == outcome for mutant in self.mutants)

    @property
    def missed(self) -> tuple[AuditedChange, ...]:
        """Mutants that were judged, without a finding of theirs and without an excuse."""
        return tuple(mutant for mutant in self.mutants if mutant.outcome == "MISSED")

    def summary(self) -> str:
        """`81 mutants: 78 reported, 3 equivalent, 0 missed`; and those that are not judged."""
        unjudged, letter = self.count("not judged"), self.count("by the letter")
        return (
            f"{len(self.mutants)} mutants: {self.count('reported')} reported,"
            f" {self.count('equivalent')} equivalent, {self.count('MISSED')} missed"
            + (f", {letter} by the letter alone" if letter else "")
            + (f", {unjudged} not judged" if unjudged else "")
        )

    def why_unjudged(self) -> tuple[str, ...]:
        """Why mutants are not judged: each kernel's reason once."""
        reasons = (f"{m.function}: no path of it is followed: {m.unjudged}" for m in self.mutants
                   if m.outcome == "not judged")  # fmt: skip
        return tuple(dict.fromkeys(reasons))


_NOTHING = Given()


def mutate(
    text: str,
    given: Given = _NOTHING,
    *,
    sample: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> MutationReport:
    """Audits every mutant of PTX text, or a random `sample` of them. Boxes that nobody told are
    those of the original.

    Raises FindingsError where the text itself has errors: nothing could be told from its mutants.
    """
    given = given.filled()
    module = read_ptx(text)
    original = audit_module(module, given, evidence=True)
    if found := of(original.findings, ERROR):
        raise FindingsError(
            f"the kernel itself has errors ({found[0].rule} at line {found[0].line})",
            hint="mutants are made of a kernel that the audit finds no error in",
        )
    work = [
        (replace(module, entries=(entry,)), report, change)
        for entry, report in zip(module.entries, original.entries, strict=True)
        for change in changes(entry, text)
    ]
    if 0 < sample < len(work):
        chosen = sorted(random.Random(seed).sample(range(len(work)), sample))
        work = [work[at] for at in chosen]
    mutants = []
    for done, (alone, report, change) in enumerate(work):
        if progress:
            progress(done, len(work))
        same_launch = replace(
            given,
            boxes={**given.boxes, **report.facts.get("boxes", {})},
            cluster=report.facts.get("cluster", given.cluster),
            trips=report.facts.get("rounds", given.trips),
        )
        mutants.append(_judged(text, alone, same_launch, report, change))
    return MutationReport(tuple(mutants))


def _judged(
    text: str, alone: Module, given: Given, original: EntryReport, change: Change
) -> AuditedChange:
    name = alone.entries[0].name
    changed = read_ptx(change.apply(text))
    one = replace(changed, entries=tuple(e for e in changed.entries if e.name == name))
    after = audit_module(one, given, first=True, evidence=True).entries[0]
    findings = new_findings(original, after)
    errors, letters = of(findings, ERROR), of(findings, LETTER)
    excuse = change.excuse
    if not errors and not letters and not excuse and original.evidence:
        excuse = told(original.evidence, change.instruction.line, removed=not change.text)
        if not excuse and kind_of(change.instruction) is not Kind.WGMMA_FENCE:
            excuse = same(original, after)
    return AuditedChange(
        function=name,
        line=change.instruction.line,
        change=change.what,
        before=change.instruction.text,
        after=" ".join(change.text.split()),
        rules=tuple(sorted({finding.rule for finding in errors})),
        letter=tuple(sorted({finding.rule for finding in letters})),
        excuse=excuse,
        unjudged=after.unfollowed,
    )


def new_findings(original: EntryReport, after: EntryReport) -> list[Finding]:
    """Findings of a mutant, but those of whose places the original has each one."""
    known = {key for finding in original.findings for key in _keys(finding)}
    return [finding for finding in after.findings if not known.issuperset(_keys(finding))]


def _keys(finding: Finding) -> set[tuple[str, str, int, int]]:
    """All places of a finding: one is told for each cause."""
    places = {(finding.line, finding.other_line), *finding.places}
    return {(finding.guess or finding.rule, finding.severity, *place) for place in places}


def told(evidence: Evidence, line: int, *, removed: bool) -> str:
    """Why the original can do without what was changed or removed at a line, from what its own
    paths showed; "" where they did not."""
    if line in evidence.unreached:
        return "no values of the parameters are found that lead to it"
    if not removed:
        return ""
    if line in evidence.spare_wgmma_fences:
        return "no register of a wgmma after it was accessed by ordinary code since the last one"
    if line in evidence.spare_fences:
        return "whenever it is executed, all that it would make visible is visible already"
    if line in evidence.unwaited_arrivals:
        return "no wait is for a phase that it arrives on"
    return ""


def same(original: EntryReport, after: EntryReport, *, shared: bool = False) -> str:
    """Whether the mutant's accesses are the original's: each read sees the same write, in order.
    "" where they are not, or nobody knows. `shared`: what was changed orders no global memory."""
    before, now = original.evidence, after.evidence
    if before is None or now is None or new_findings(original, after):
        return ""
    if before.blind or now.blind or (before.through_global and not shared):
        return ""
    if before.flow != now.flow or original.facts["paths"] != after.facts["paths"]:
        return ""
    return (
        f"on all {after.facts['paths']} paths each read sees the same write, and every conflicting"
        " pair of accesses is still ordered"
    )
