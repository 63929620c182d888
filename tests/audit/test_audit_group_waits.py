"""Findings on PTX name the wait_group to change and the groups that it may leave."""

from pathlib import Path

import pytest
from ptx_snippets import COMMIT, DONE, FENCE, MMA, USE, kernel

from mlagen.audit.ptx import Given, audit_ptx
from mlagen.audit.ptx.changes import changes
from mlagen.ptx import read_ptx
from mlagen.severity import ERROR, of

KERNELS = Path(__file__).parent / "kernels"


def errors(text, given=None):
    return of(audit_ptx(text, given or Given()).findings, ERROR)


@pytest.mark.parametrize("name", ["handoff", "gemm_deferred_release"])
def test_each_wait_that_leaves_one_group_more_is_named(name):
    """With its number, which is what the kernel has: a finding that names it is one."""
    text = (KERNELS / f"{name}.ptx").read_text()
    (entry,) = read_ptx(text).entries
    named = 0
    for change in changes(entry, text):
        if change.what != "waits for one group less":
            continue
        found = [finding for finding in errors(change.apply(text)) if finding.change]
        (one,) = found
        asked = change.instruction.operands[0]
        assert one.change == change.instruction.line
        assert one.needs.endswith(f"wait_group {asked}")
        assert f"at line {one.change} must be {asked}" in one.message
        assert f"Needs {one.needs} at line {one.change}." in one.render()
        named += 1
    assert named >= 2


# Three stages of cp.async; the loop reads what it waited for. Row r is of stage r % 3.
STAGES = """
    shl.b32 %r1, %t, 4;
    add.u32 %r1, %r1, %base;
    cp.async.cg.shared.global [%r1], [%g], 16;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r1+4096], [%g], 16;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r1+8192], [%g], 16;
    cp.async.commit_group;
    cp.async.wait_group FIRST;
    bar.sync 0;
    xor.b32 %r2, %r1, 1024;
    ld.shared.f32 %x, [%r2];
    cp.async.wait_group SECOND;
    bar.sync 0;
    ld.shared.f32 %x, [%r2+4096];
    cp.async.wait_group 0;
    BETWEEN
    ld.shared.f32 %x, [%r2+8192];
"""


def staged(first=2, second=1, between="bar.sync 0;"):
    text = STAGES.replace("FIRST", str(first)).replace("SECOND", str(second))
    return kernel(text.replace("BETWEEN", between))


def test_copies_of_threads():
    assert not errors(staged())
    for first, second, asked in ((3, 1, 2), (2, 2, 1)):
        (one,) = errors(staged(first, second))
        assert (one.rule, one.needs) == ("smem-raw", f"cp.async.wait_group {asked}")
        line = staged().splitlines().index(f"    cp.async.wait_group {asked};") + 1
        assert one.change == line


def test_a_barrier_that_is_missing_is_no_wait_that_is_weak():
    (one,) = errors(staged(between=""))
    assert one.rule == "smem-raw" and not one.change and "wait_group" not in one.needs


def test_a_wait_of_products():
    read = FENCE + MMA + COMMIT + FENCE + MMA + COMMIT + DONE
    weak = read.replace("wait_group.sync.aligned 0", "wait_group.sync.aligned 1") + USE
    found = errors(kernel(weak))
    assert {finding.needs for finding in found} == {"wgmma.wait_group 0"}
    (one,) = found
    assert "wgmma.wait_group 1 at line" in one.message
