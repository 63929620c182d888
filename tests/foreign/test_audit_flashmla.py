"""The audit of FlashMLA's kernels: it ends, and every finding has a verdict."""

import pytest
from ptx_verdicts import KERNELS, class_of, text_of

from mlagen.audit.ptx import Given, audit_ptx

SECONDS = 40  # of CPU time; the decode kernels have more paths than that


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.file)
def test_every_finding_has_a_verdict(kernel):
    given = Given(shared_bytes=kernel.shared_bytes)
    report = audit_ptx(text_of(kernel), given, seconds=SECONDS)
    found = {class_of(finding) for finding in report.findings}
    assert None not in found, [f.render() for f in report.findings if class_of(f) is None]
    assert found <= kernel.classes
    assert report.entries[0].facts.get("cluster", 1) == kernel.blocks
    ended = not any("the audit ended before" in said for said in report.unchecked)
    assert ended or not kernel.whole
    if kernel.whole:
        assert found == kernel.classes


@pytest.mark.slow
def test_prefill_with_a_wait_taken_away():
    """The producer's wait for the free half of the first buffer: what it orders is told."""
    kernel = KERNELS[0]
    lines = text_of(kernel).splitlines()
    waits = [i for i, line in enumerate(lines) if "mbarrier.try_wait" in line and i > 4780]
    at = waits[0]
    lines[at] = "setp.eq.u32 P1, 0, 0;"
    given = Given(shared_bytes=kernel.shared_bytes)
    report = audit_ptx("\n".join(lines), given, seconds=SECONDS, first=False)
    assert any(finding.severity == "error" for finding in report.findings)
