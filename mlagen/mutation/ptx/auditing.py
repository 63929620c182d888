"""What the audit says of a mutant: findings that the kernel has not, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlagen.audit.ptx import Given
from mlagen.audit.ptx.check import audit_module
from mlagen.audit.ptx.mutation import new_findings, same, told
from mlagen.audit.ptx.report import EntryReport, Finding
from mlagen.errors import MlagenError
from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.ptx import Module, read_ptx
from mlagen.ptx.effects import Kind
from mlagen.severity import ERROR, LETTER, of

_SECONDS = 60  # of CPU for one mutant; what was not looked at is no finding


@dataclass(frozen=True, slots=True)
class MutantAudit:
    """`finding`: the first error that is new, "" for none. `excuse`: why the change alters nothing,
    as far as the audit can tell; "" where it cannot. `letter`: the first new finding by the letter
    of the ISA, which kills nothing."""

    finding: str
    excuse: str
    letter: str = ""


class AuditJudge:
    """Audits the mutants of one entry."""

    def __init__(self, text: str, entry: str, given: Given) -> None:
        self.entry = entry
        self.original = _audited(_alone(read_ptx(text), entry), given.filled())
        facts = self.original.facts
        self.given = replace(
            given.filled(),
            boxes={**given.filled().boxes, **facts.get("boxes", {})},
            trips=facts.get("rounds", given.trips),
        )

    def judge(self, mutant: PtxMutant, text: str) -> MutantAudit:
        """Audits a mutant's text."""
        try:
            module = _alone(read_ptx(text), self.entry)
            # One finding is enough, unless it may be one that the kernel itself has.
            after = _audited(module, self.given, first=not of(self.original.findings, ERROR))
        except MlagenError as error:
            return MutantAudit(f"refused: {error.message.partition(chr(10))[0]}", "")
        new = new_findings(self.original, after)
        if errors := of(new, ERROR):
            return MutantAudit(_told(errors[0]), "")
        letters = of(new, LETTER)
        return MutantAudit(
            "", self._excuse(mutant, module, after), _told(letters[0]) if letters else ""
        )

    def _excuse(self, mutant: PtxMutant, module: Module, after: EntryReport) -> str:
        evidence = self.original.evidence
        if evidence is None or of(self.original.findings, ERROR):
            return ""
        if why := told(evidence, mutant.line, removed=mutant.removed):
            return why
        if mutant.operator == f"{Kind.WGMMA_FENCE.value} removed":
            return ""
        return same(self.original, after)


def _alone(module: Module, entry: str) -> Module:
    return replace(module, entries=tuple(e for e in module.entries if e.name == entry))


def _audited(module: Module, given: Given, *, first: bool = False) -> EntryReport:
    report = audit_module(module, given, first=first, evidence=True, seconds=_SECONDS)
    return report.entries[0]


def _told(finding: Finding) -> str:
    return f"{finding.rule} at line {finding.line}"
