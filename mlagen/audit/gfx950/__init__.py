"""Static checks of gfx950 machine code, whoever wrote it: all paths, no inputs."""

from mlagen.audit.gfx950.check import (
    KernelAudit,
    Report,
    WaitSlack,
    audit_code_object,
    audit_kernel,
)
from mlagen.audit.gfx950.findings import RULES, Finding
from mlagen.audit.gfx950.mutants import AuditedMutant, CodeMutant, audit_mutants, code_mutants

__all__ = [
    "RULES",
    "AuditedMutant",
    "CodeMutant",
    "Finding",
    "KernelAudit",
    "Report",
    "WaitSlack",
    "audit_code_object",
    "audit_kernel",
    "audit_mutants",
    "code_mutants",
]
