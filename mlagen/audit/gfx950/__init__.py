"""Static checks of gfx950 machine code, whoever wrote it: all paths, no inputs."""

from mlagen.audit.gfx950.budget import DEFAULT_LIMIT
from mlagen.audit.gfx950.check import (
    KernelAudit,
    Report,
    WaitSlack,
    audit_code_object,
    audit_kernel,
)
from mlagen.audit.gfx950.findings import RULES, Finding, InstructionPair
from mlagen.audit.gfx950.mutants import AuditedMutant, CodeMutant, audit_mutants, code_mutants

__all__ = [
    "DEFAULT_LIMIT",
    "RULES",
    "AuditedMutant",
    "CodeMutant",
    "Finding",
    "InstructionPair",
    "KernelAudit",
    "Report",
    "WaitSlack",
    "audit_code_object",
    "audit_kernel",
    "audit_mutants",
    "code_mutants",
]
