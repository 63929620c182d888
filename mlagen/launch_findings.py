"""The sanitizer's findings of a run, placed at the schedule's lines."""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.artifact import Artifact
from mlagen.errors import FindingsError
from mlagen.launch import LaunchReport
from mlagen.locate import LocatedFinding, executed_code, locate

SHOWN = 3  # findings spelled out in an error; the rest are counted


def findings_of(artifact: Artifact, report: LaunchReport) -> tuple[LocatedFinding, ...]:
    """What the emulator found in this launch; empty for a launch that was not emulated."""
    if report.emulation is None or not report.emulation.findings:
        return ()
    return locate(report.emulation.findings, executed_code(artifact), artifact.manifest)


def findings_error(artifact: Artifact, findings: Sequence[LocatedFinding]) -> FindingsError:
    """The error that says what was found, the first few in full."""
    name = artifact.manifest.kernel
    count = "a defect" if len(findings) == 1 else f"{len(findings)} defects"
    parts = [f"{name}: the sanitizer found {count}; the output is not to be used"]
    parts += [finding.render() for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        parts.append(f"… and {len(findings) - SHOWN} more")
    return FindingsError("\n".join(parts), hint="mlagen verify lists them all")
