"""Static checks of gfx950 machine code, whoever wrote it: all paths, no inputs."""

from mlagen.audit.gfx950.check import (
    KernelAudit,
    Report,
    WaitSlack,
    audit_code_object,
    audit_kernel,
)
from mlagen.audit.gfx950.findings import RULES, Finding

__all__ = [
    "RULES",
    "Finding",
    "KernelAudit",
    "Report",
    "WaitSlack",
    "audit_code_object",
    "audit_kernel",
]
