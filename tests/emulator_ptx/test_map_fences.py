"""Litmus tests of tensor maps that a kernel edits: who edits, what is fenced, who tells whom. The
emulator says in every mode what the audit says, and both what the PTX ISA 9.0 does ("Proxies",
"membar, fence", tensormap.replace, cp_fenceproxy)."""

from itertools import product

import numpy as np
import pytest
from running import kernel, run

from mlagen.audit.ptx import audit_ptx
from mlagen.emulator import Argument, Buffer, Launch, TensorMap, emulate
from mlagen.emulator.ptx.host.map_records import passed
from mlagen.severity import ERROR, of

RULE = "tensormap-fence"
MODES = [("latest", 0), ("earliest", 0), ("drawn", 1)]
HEAD = """
.shared .align 1024 .b8 buf[1024];
.shared .align 128 .b8 made[128];
.shared .align 8 .b64 bar;
"""
BEGIN = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p0, %r1, 0;
setp.eq.u32 %p1, %r1, 64;
setp.eq.u32 %p2, %r1, 96;
ld.param.u64 %rd1, [edited];
ld.param.u64 %rd2, [kept];
ld.param.u64 %rd3, [tensor];
@%p0 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
REPLACE = "@%p0 tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd3;\n"
COPY = """
setp.lt.u32 %p3, %r1, 32;
@!%p3 bra OTHERS;
mul.wide.u32 %rd4, %r1, 4;
add.u64 %rd4, %rd2, %rd4;
ld.global.u32 %r2, [%rd4];
mov.u32 %r3, made;
mad.lo.u32 %r3, %r1, 4, %r3;
st.shared.u32 [%r3], %r2;
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
 [%rd1], [made], 128;
OTHERS:
"""
RELEASE = "@%p0 fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "@{who} fence.proxy.tensormap::generic.acquire.gpu [{at}], 128;\n"
SYNC = "bar.sync 0;\n"
USE = """
@!%p1 bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes
 [buf], [%rd1, {0}], [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;
@!%p9 bra W;
END: ret;
"""
EDITS = {"replace": REPLACE, "cp_fenceproxy": COPY}
RELEASES = {"none": "", "release": RELEASE}
# Behind the barrier that tells of the edit by the user, or by another, who tells it; or before.
ACQUIRES = ("none", "user", "of another map", "another", "another, untold", "early")


def body(edit, release, told, acquire):
    """Thread 64 copies through the map that warp 0 edited."""
    who = "%p2" if acquire.startswith("another") else "%p1"
    at = "%rd2" if acquire == "of another map" else "%rd1"
    fence = "" if acquire == "none" else ACQUIRE.format(who=who, at=at)
    early, late = (fence, "") if acquire == "early" else ("", fence)
    late += SYNC * (acquire == "another")
    return BEGIN + early + EDITS[edit] + RELEASES[release] + SYNC * told + late + USE


def launched(text, mode="latest", seed=0):
    """The findings of a run whose maps lie in global memory."""
    tensor = np.arange(256, dtype=np.uint32)
    made = TensorMap(Buffer("t", tensor), "u32", (256,), (), (256,))
    arguments = {
        "edited": np.frombuffer(bytearray(passed(0)), np.uint8),
        "kept": np.frombuffer(bytearray(passed(0)), np.uint8),
        "tensor": tensor,
    }
    ran = run(text, arguments, maps={"m": made}, block=(128, 1, 1), mode=mode, seed=seed)
    assert ran.ended, ran.fault
    return ran.findings


def text_of(lines):
    return kernel(
        lines, "edited, kept, tensor, .param .align 64 .b8 m[128]", head=HEAD,
        directives=".reqntid 128, 1, 1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "release", "told", "acquire"), list(product(EDITS, RELEASES, (True, False), ACQUIRES))
)
def test_an_edit_and_a_copy(edit, release, told, acquire):
    released = edit == "cp_fenceproxy" or release == "release"
    right = released and told and acquire in ("user", "another")
    text = text_of(body(edit, release, told, acquire))
    audited = {one.rule for one in of(audit_ptx(text).findings, ERROR)}
    assert (RULE in audited) is not right
    for mode, seed in MODES:
        kinds = {one.kind for one in launched(text, mode, seed)}
        assert ("MAP_FENCE" in kinds) is not right
        assert not right or not kinds


def test_a_second_edit_asks_for_its_own_fences():
    fences = RELEASE + SYNC + ACQUIRE.format(who="%p1", at="%rd1") + SYNC
    once = BEGIN + REPLACE + fences
    assert not launched(text_of(once + USE))
    assert not launched(text_of(once + REPLACE + fences + USE))
    (found,) = launched(text_of(once + REPLACE + SYNC + USE))
    assert (found.kind, found.warp, found.other_warp) == ("MAP_FENCE", 2, 0)


WORDS = {
    "release": "generic.release by the warp that edits",
    "acquire": "generic.acquire of the map",
}


@pytest.mark.parametrize("lacks", WORDS)
def test_what_lacks_is_told_in_words(lacks):
    """By way of a launch, whose map is a parameter that the kernel copies before it edits it."""
    copied = "@!%p0 bra C;\n" + "".join(
        f"ld.param.u64 %rd5, [m+{at}];\nst.global.u64 [%rd1+{at}], %rd5;\n"
        for at in range(0, 128, 8)
    )
    lines = body("replace", "none" if lacks == "release" else "release", True, "none")
    text = text_of(lines.replace(REPLACE, copied + "C:\n" + REPLACE))
    tensor = Buffer("tensor", np.arange(256, dtype=np.uint32))
    edited = Buffer("edited", np.zeros(128, np.uint8))
    made = TensorMap(tensor, "u32", (256,), (), (256,))
    given = [(0, edited), (8, edited), (16, tensor), (64, made)]
    launch = Launch((1, 1, 1), (128, 1, 1), [Argument(at, value) for at, value in given])
    found = [one for one in emulate(text, launch).findings if one.kind == RULE]
    assert len(found) == 1 and found[0].severity == ERROR
    assert WORDS[lacks] in found[0].needs and "edited + 0x0" in found[0].message
