"""Litmus tests of tensor maps that a kernel edits: who edits, what is fenced, who tells whom; and
the verdict of PTX ISA 9.0 ("Proxies", "membar, fence", tensormap.replace, cp_fenceproxy)."""

from itertools import product

import pytest
from ptx_snippets import INIT, kernel, wait

from mlagen.audit.ptx import Given, audit_ptx

RULE = "tensormap-fence"
REPLACE = (
    "    @%one tensormap.replace.tile.global_address.global.b1024.b64 [%g+1024], %db;\n"
    "    @%one tensormap.replace.tile.rank.global.b1024.b32 [%g+1024], 1;\n"
)
COPY = (
    "    setp.lt.u32 %p7, %t, 32;\n    @!%p7 bra OTHERS;\n"
    "    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    " [%g+1024], [%base], 128;\nOTHERS:\n"
)
RELEASE = "    @%one fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "    {who}fence.proxy.tensormap::generic.acquire.gpu [{at}], 128;\n"
SYNC = "    bar.sync 0;\n"
USE = (
    "    {who}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;\n"
    "    {who}cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%base+1024], [{at}, {{%r0}}], [%bar];\n"
)
EDITS = {"replace": REPLACE, "cp_fenceproxy": COPY}
RELEASES = {"none": "", "release": RELEASE}
# Before the barrier that tells of the edit, behind it by the user, or by another, who tells it.
ACQUIRES = {
    "none": "",
    "user": ACQUIRE,
    "of another map": ACQUIRE,
    "another": ACQUIRE,
    "early": ACQUIRE,
}


def body(edit, release, told, acquire):
    """Thread 64 uses the map that warp 0 edited."""
    user = "    setp.eq.u32 %p1, %t, 64;\n    setp.eq.u32 %p2, %t, 96;\n"
    who = "@%p2 " if acquire == "another" else "@%p1 "
    at = "%g+2048" if acquire == "of another map" else "%g+1024"
    fence = ACQUIRES[acquire].format(who=who, at=at)
    early, late = (fence, "") if acquire == "early" else ("", fence)
    told = SYNC if told else ""
    late += SYNC if acquire == "another" else ""
    return (
        INIT + user + early + EDITS[edit] + RELEASES[release] + told + late
        + USE.format(who="@%p1 ", at="%g+1024") + wait(1)
    )  # fmt: skip


def rules(text):
    found = audit_ptx(kernel(text), Given(boxes={})).findings
    return {one.rule for one in found if one.severity == "error"}


@pytest.mark.parametrize(
    ("edit", "release", "told", "acquire"), list(product(EDITS, RELEASES, (True, False), ACQUIRES))
)
def test_an_edit_and_a_copy(edit, release, told, acquire):
    released = edit == "cp_fenceproxy" or release == "release"
    # The barrier behind another's fence tells of both, but that one has to know of the edit first.
    right = released and told and acquire in ("user", "another")
    assert (RULE in rules(body(edit, release, told, acquire))) is not right


def test_a_map_that_nobody_edits_needs_no_fence():
    assert RULE not in rules(INIT + REPLACE + USE.format(who="@%one ", at="%map") + wait(1))


def test_one_thread_edits_and_uses():
    fences = RELEASE + ACQUIRE.format(who="@%one ", at="%g+1024")
    use = USE.format(who="@%one ", at="%g+1024") + wait(1)
    assert RULE not in rules(INIT + REPLACE + fences + use)
    for left_out in (RELEASE, fences.removeprefix(RELEASE)):
        assert RULE in rules(INIT + REPLACE + fences.replace(left_out, "") + use)


def test_what_lacks_is_named():
    text = kernel(body("replace", "release", True, "none"))
    (found,) = (one for one in audit_ptx(text).findings if one.rule == RULE)
    assert "fence.proxy.tensormap::generic.acquire" in found.needs
    assert found.text.startswith("@%p1 cp.async.bulk.tensor")
    assert found.other_text.startswith("@%one tensormap.replace")


def test_a_store_goes_through_a_map_too():
    store = (
        "    @%one cp.async.bulk.tensor.1d.global.shared::cta.bulk_group"
        " [%g+1024, {%r0}], [%base];\n"
    )
    done = "    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\n"
    assert RULE in rules(REPLACE + RELEASE + store + done)
    fence = ACQUIRE.format(who="@%one ", at="%g+1024")
    assert RULE not in rules(REPLACE + RELEASE + fence + store + done)
