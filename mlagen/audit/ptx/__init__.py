"""Static checks of PTX text, whoever wrote it."""

from mlagen.audit.ptx.advice import advise_ptx
from mlagen.audit.ptx.check import Given, audit_ptx
from mlagen.audit.ptx.mutation import AuditedChange, MutationReport, mutate
from mlagen.audit.ptx.report import RULES, EntryReport, Finding, Report
from mlagen.audit.ptx.source import Beside, read_manifest

__all__ = [
    "RULES",
    "AuditedChange",
    "Beside",
    "EntryReport",
    "Finding",
    "Given",
    "MutationReport",
    "Report",
    "advise_ptx",
    "audit_ptx",
    "mutate",
    "read_manifest",
]
