"""Each rule: a few lines that break it, and the same lines put right, which have no finding."""

import pytest
from ptx_snippets import (
    ARM,
    COMMIT,
    DONE,
    FENCE,
    INIT,
    MMA,
    MMA_REGISTERS,
    TWO,
    USE,
    kernel,
    wait,
)

from mlagen.audit.ptx import RULES, audit_ptx
from mlagen.severity import ASSUMED

WHOLE = FENCE + MMA + COMMIT + DONE
STORE = "    st.shared.b32 [%at], %r1;\n"
LOAD = "    ld.shared.b32 %r2, [%at];\n"
OTHERS = "    xor.b32 %r3, %at, 4;\n    ld.shared.b32 %r2, [%r3];\n"
PROXY = "    fence.proxy.async.shared::cta;\n"
SYNC = "    bar.sync 0;\n"
COPY_OUT = (
    "    @%one cp.async.bulk.global.shared::cta.bulk_group [%g], [%base], 512;\n"
    "    @%one cp.async.bulk.commit_group;\n"
)
READ_OUT = "    @%one cp.async.bulk.wait_group.read 0;\n"
GATHER = "    cp.async.ca.shared.global [%at], [%g], 4;\n"
GATHERED = "    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%bar+8];\n"
LOOP = (
    "    mov.u32 %i, 0;\nL:\n{}    add.u32 %i, %i, 1;\n    setp.lt.u32 %p1, %i, %n;\n"
    "    @%p1 bra L;\n"
)
TOGGLE = "    xor.b32 %parity, %parity, 1;\n"
WAIT_PARITY = wait(9, "%parity")
ARRIVE = "    @%one mbarrier.arrive.shared::cta.b64 _, [%bar];\n"
ALL_ARRIVE = "    mbarrier.arrive.shared::cta.b64 _, [%bar+8];\n"

# A cluster of two blocks, and the same place in the other one.
PAIR = {"limits": " .reqntid 128, 1, 1 .reqnctapercluster 2, 1, 1"}
PEER = (
    "    mov.u32 %r4, %cluster_ctarank;\n    xor.b32 %r4, %r4, 1;\n"
    "    mapa.shared::cluster.u32 %r5, %at, %r4;\n"
)
STORE_THERE = "    st.shared::cluster.b32 [%r5], %r1;\n"
LOAD_THERE = "    ld.shared::cluster.b32 %r2, [%r5];\n"
MEET = "    barrier.cluster.arrive.release;\n    barrier.cluster.wait.acquire;\n"

# A tensor map in global memory, edited and used by one thread.
EDIT = (
    "    @%one tensormap.replace.tile.rank.global.b1024.b32 [%g+1024], 1;\n"
    "    @%one fence.proxy.tensormap::generic.release.gpu;\n"
)
ACQUIRED = "    @%one fence.proxy.tensormap::generic.acquire.gpu [%g+1024], 128;\n"
THROUGH = (
    "    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;\n"
    "    @%one cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%base], [%g+1024, {%r0}], [%bar];\n"
)

# tcgen05, of which the text alone is looked at.
BLACKWELL = {"target": "sm_100a"}
ALLOC = "    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar], 64;\n"
PERMIT = "    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
FREE = "    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;\n"
TENSOR_LOAD = "    tcgen05.ld.sync.aligned.{}.b32 {}, [%r1{}];\n".format
SUM = "    mov.b32 %i, {};\n    tcgen05.mma{}.kind::f16 [%r1], %da, %db, %i, 1;\n".format
WORD = 0x8400490  # M 128, N 256, bf16 into f32

# (rule, lines that break it, the twin, options of `kernel`)
CASES = {
    "accumulator read in flight": (
        "wgmma-in-flight", FENCE + MMA + COMMIT + USE + DONE, WHOLE + USE, {}),
    "accumulator read after a wait for older groups only": (
        "wgmma-in-flight",
        FENCE + MMA + COMMIT + "    wgmma.wait_group.sync.aligned 1;\n" + USE + DONE,
        FENCE + MMA + COMMIT + "    wgmma.wait_group.sync.aligned 0;\n" + USE, {}),
    "operand A overwritten in flight": (
        "wgmma-a-overwritten",
        FENCE + MMA_REGISTERS + COMMIT + "    mov.b32 %a0, %t;\n" + DONE,
        FENCE + MMA_REGISTERS + COMMIT + DONE + "    mov.b32 %a0, %t;\n", {}),
    "no fence before the first": ("wgmma-fence", MMA + COMMIT + DONE, WHOLE, {}),
    "accumulator written and no fence": (
        "wgmma-fence", WHOLE + "    mov.f32 %d0, 0f00000000;\n" + MMA + COMMIT + DONE,
        WHOLE + "    mov.f32 %d0, 0f00000000;\n" + WHOLE, {}),
    "no commit": ("wgmma-uncommitted", FENCE + MMA + DONE + COMMIT + DONE, WHOLE, {}),
    "wait on one path only": (
        "wgmma-wait-conditional",
        FENCE + MMA + COMMIT + "    setp.eq.u32 %p1, %n, 0;\n    @%p1 bra S;\n" + DONE + "S:\n"
        + USE + DONE,
        FENCE + MMA + COMMIT + "    setp.eq.u32 %p1, %n, 0;\n    @%p1 bra S;\nS:\n" + DONE + USE,
        {}),
    "in flight over the back edge": (
        "wgmma-back-edge",
        LOOP.format("    wgmma.wait_group.sync.aligned 1;\n" + USE + FENCE + MMA + COMMIT + COMMIT)
        + DONE,
        LOOP.format(DONE + USE + FENCE + MMA + COMMIT + COMMIT) + DONE, {}),
    "in flight at the end": ("wgmma-unwaited", FENCE + MMA + COMMIT, WHOLE, {}),
    "a guard on a wgmma": (
        "wgmma-predicated", FENCE + MMA.replace("wgmma", "@%two wgmma", 1) + COMMIT + DONE, WHOLE,
        {}),
    "warps issue different wgmma": (
        "wgmma-diverged",
        FENCE + "    setp.lt.u32 %p1, %t, 32;\n    @%p1 bra B;\n" + MMA + "    bra J;\nB:\n" + MMA
        + "J:\n" + COMMIT + DONE,
        WHOLE, {}),
    "count of zero": ("mbarrier-count", INIT.replace("[%bar], 1", "[%bar], 0"), INIT, {}),
    "misaligned mbarrier": (
        "mbarrier-count", INIT.replace("[%bar], 1", "[%bar+4], 1"),
        INIT.replace("[%bar], 1", "[%bar+8], 1"), {}),
    "an mbarrier that nobody initialised": (
        "mbarrier-uninitialised", INIT + ARRIVE.replace("%bar]", "%bar+8]"), INIT + ARRIVE, {}),
    "an mbarrier used before the others know it": (
        "mbarrier-visible", INIT.replace(SYNC, "") + ARRIVE + wait(1), INIT + ARRIVE + wait(1), {}),
    "an initialisation that copies do not see": (
        "mbarrier-visible",
        INIT.replace("    fence.mbarrier_init.release.cluster;\n", "") + ARM + wait(1),
        INIT + ARM + wait(1), {}),
    "more bytes expected than come": (
        "mbarrier-transaction", INIT + ARM.replace("1024;", "1040;") + wait(1),
        INIT + ARM + wait(1), {}),
    "fewer bytes expected than come": (
        "mbarrier-transaction", INIT + ARM.replace("1024;", "1008;") + wait(1),
        INIT + ARM + wait(1), {}),
    "bytes that no boxes have": (
        "mbarrier-transaction",
        INIT + "    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1001;\n"
        "    mov.u32 %i, 0;\n"
        "    @%one cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%base], [%map, {%i, %i}], [%bar];\n" + wait(1),
        INIT + "    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;\n"
        "    mov.u32 %i, 0;\n"
        "    @%one cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%base], [%map, {%i, %i}], [%bar];\n" + wait(1), {}),
    "too few arrivals": (
        "mbarrier-arrivals", TWO + "    @%p1 bra S;\n".replace("%p1", "%one") + ALL_ARRIVE + "S:\n"
        + wait(1, 0, 8),
        TWO + ALL_ARRIVE + wait(1, 0, 8), {}),
    "too many arrivals": (
        "mbarrier-arrivals",
        INIT + ARRIVE + "    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;\n"
        + ARRIVE + wait(1),
        INIT + ARRIVE + wait(1), {}),
    "an arrival that may fall into the phase before": (
        "mbarrier-order", INIT + ARRIVE + ARRIVE + wait(1, 1),
        INIT + ARRIVE + wait(1, 0) + SYNC + ARRIVE + wait(2, 1), {}),
    "a phase that ends unseen": (
        "mbarrier-overrun",
        INIT + ARRIVE + wait(1, 0) + ARRIVE + wait(2, 1),
        INIT + ARRIVE + wait(1, 0) + SYNC + ARRIVE + wait(2, 1), {}),
    "data over an mbarrier": (
        "mbarrier-overwritten", INIT + "    @%one st.shared.b32 [%bar], %r1;\n",
        INIT + "    @%one mbarrier.inval.shared::cta.b64 [%bar];\n"
        "    @%one st.shared.b32 [%bar], %r1;\n", {}),
    "a store into a block that may not have begun": (
        "cluster-begin", PEER + STORE_THERE + MEET, PEER + MEET + STORE_THERE + MEET, PAIR),
    "a load from a block that may have ended": (
        "cluster-end", PEER + MEET + LOAD_THERE, PEER + MEET + LOAD_THERE + MEET, PAIR),
    "the wrong parity": (
        "deadlock", INIT + ARRIVE + "    mov.u32 %parity, 0;\n" + WAIT_PARITY + SYNC
        + WAIT_PARITY.replace("W9", "W8").replace("%parity;", "1;"),
        INIT + ARRIVE + "    mov.u32 %parity, 0;\n" + WAIT_PARITY, {}),
    "a barrier that not all come to": (
        "deadlock", "    @%two bra S;\n    bar.sync 1, 256;\nS:\n",
        "    bar.sync 1, 256;\n", {"threads": 256}),
    "read before the copy has landed": (
        "smem-raw", INIT + ARM + SYNC + LOAD + wait(1), INIT + ARM + wait(1) + LOAD, {}),
    "another thread's store read without a barrier": (
        "smem-raw", STORE + OTHERS, STORE + SYNC + OTHERS, {}),
    "a lane's store read by its warp": (
        "smem-raw", STORE + OTHERS, STORE + "    bar.warp.sync 0xffffffff;\n" + OTHERS, {}),
    "cp.async read before it has landed": (
        "smem-raw", GATHER + "    cp.async.commit_group;\n" + LOAD
        + "    cp.async.wait_group 0;\n" + SYNC,
        GATHER + "    cp.async.commit_group;\n    cp.async.wait_group 0;\n" + LOAD, {}),
    "a group of cp.async too few": (
        "smem-raw", GATHER + "    cp.async.commit_group;\n    cp.async.wait_group 1;\n" + LOAD
        + "    cp.async.wait_all;\n",
        GATHER + "    cp.async.commit_group;\n    cp.async.wait_group 0;\n" + LOAD, {}),
    "a gather waited for before its arrival": (
        "deadlock", TWO + GATHER + "    cp.async.mbarrier.arrive.shared::cta.b64 [%bar+8];\n"
        + wait(1, 0, 8) + OTHERS,
        TWO + GATHER + GATHERED + wait(1, 0, 8) + OTHERS, {}),
    "overwritten before it has been read": (
        "smem-war", INIT + OTHERS + ARM + wait(1),
        INIT + OTHERS + PROXY + SYNC + ARM + wait(1), {}),
    "overwritten before a load has read": (
        "smem-load-release", INIT + OTHERS + SYNC + ARM + wait(1),
        INIT + OTHERS + PROXY + SYNC + ARM + wait(1), {}),
    "overwritten while a wgmma reads it": (
        "smem-war", INIT + FENCE + MMA + COMMIT + ARM + DONE + wait(1),
        INIT + WHOLE + ARM + wait(1), {}),
    "two stores to one place": (
        "smem-waw", "    st.shared.b32 [%base], %t;\n    bar.sync 0;\n"
        "    setp.eq.u32 %p1, %t, 64;\n    @%one st.shared.b32 [%base], %t;\n"
        "    @%p1 st.shared.b32 [%base], %t;\n",
        "    @%one st.shared.b32 [%base], %t;\n    bar.sync 0;\n"
        "    setp.eq.u32 %p1, %t, 64;\n    @%p1 st.shared.b32 [%base], %t;\n", {}),
    "out of bounds": (
        "smem-bounds", "    st.shared.b32 [%at+16384], %r1;\n",
        "    st.shared.b32 [%at+15872], %r1;\n", {}),
    "a copy out of bounds": (
        "smem-bounds", INIT + ARM.replace("[%base]", "[%base+15872]") + wait(1),
        INIT + ARM.replace("[%base]", "[%base+15360]") + wait(1), {}),
    "more shared memory than there is": ("smem-size", "", "", {"buf": 232449}),
    "a misaligned copy": (
        "smem-alignment", INIT + ARM.replace("[%base]", "[%base+8]") + wait(1),
        INIT + ARM.replace("[%base]", "[%base+16]") + wait(1), {}),
    "a descriptor into the middle of a swizzle": (
        "smem-alignment", "    add.s64 %da, %da, 8;\n" + WHOLE,
        "    add.s64 %da, %da, 2;\n" + WHOLE, {}),
    "ordinary stores read by a wgmma": (
        "proxy-fence", STORE + SYNC + WHOLE, STORE + PROXY + SYNC + WHOLE, {}),
    "ordinary stores read by a bulk store": (
        "proxy-fence", STORE + SYNC + COPY_OUT + READ_OUT,
        STORE + PROXY + SYNC + COPY_OUT + READ_OUT, {}),
    "gathered tiles read by a wgmma": (
        "proxy-fence", TWO + GATHER + GATHERED + wait(1, 0, 8) + WHOLE,
        TWO + GATHER + GATHERED + wait(1, 0, 8) + PROXY + WHOLE, {}),
    "an edited tensor map without the fence of its user": (
        "tensormap-fence", INIT + EDIT + THROUGH + wait(1),
        INIT + EDIT + ACQUIRED + THROUGH + wait(1), {}),
    "a copy in flight at the end": ("copy-unwaited", INIT + ARM, INIT + ARM + wait(1), {}),
    "a bulk store in flight at the end": ("bulk-unwaited", COPY_OUT, COPY_OUT + READ_OUT, {}),
    "named barrier 16": ("bar-id", "    bar.sync 16, 128;\n", "    bar.sync 15, 128;\n", {}),
    "a count that is no multiple of 32": (
        "bar-count", "    bar.sync 1, 120;\n", "    bar.sync 1, 128;\n", {}),
    "two counts for one barrier": (
        "bar-count",
        "    @%two bra S;\n    bar.sync 1, 256;\n    bra END;\nS:\n    bar.arrive 1, 160;\n",
        "    @%two bra S;\n    bar.sync 1, 256;\n    bra END;\nS:\n    bar.arrive 1, 256;\n",
        {"threads": 256}),
    "one barrier for two groups": (
        "bar-order", "    bar.sync 1, 128;\n",
        "    @%two bra S;\n    bar.sync 1, 128;\n    bra END;\nS:\n    bar.sync 2, 128;\n",
        {"threads": 256}),
    "inc that lowers": (
        "setmaxnreg-value", "    setmaxnreg.inc.sync.aligned.u32 24;\n",
        "    setmaxnreg.dec.sync.aligned.u32 24;\n", {"threads": 256}),
    "no multiple of 8": (
        "setmaxnreg-value", "    setmaxnreg.dec.sync.aligned.u32 36;\n",
        "    setmaxnreg.dec.sync.aligned.u32 40;\n", {}),
    "registers at entry unknown": (
        "setmaxnreg-entry", "    setmaxnreg.dec.sync.aligned.u32 40;\n",
        "", {"limits": ""}),
    "more registers than were given back": (
        "setmaxnreg-pool",
        "    @%two bra S;\n    setmaxnreg.inc.sync.aligned.u32 240;\n    bra END;\nS:\n"
        "    setmaxnreg.dec.sync.aligned.u32 104;\n",
        "    @%two bra S;\n    setmaxnreg.inc.sync.aligned.u32 232;\n    bra END;\nS:\n"
        "    setmaxnreg.dec.sync.aligned.u32 80;\n",
        {"threads": 256, "limits": " .reqntid 256, 1, 1 .maxnreg 168"}),
    "half of a warpgroup": (
        "setmaxnreg-diverged",
        "    setp.lt.u32 %p1, %t, 64;\n    @%p1 bra END;\n"
        "    setmaxnreg.dec.sync.aligned.u32 40;\n",
        "    setmaxnreg.dec.sync.aligned.u32 40;\n", {}),
    "a lane at a warp-wide instruction": (
        "divergence", "    @%one bra S;\n    bar.warp.sync 0xffffffff;\n    bra END;\nS:\n"
        "    bar.sync 0;\n", "    bar.warp.sync 0xffffffff;\n", {}),
    "columns that are no power of two": (
        "tcgen05-columns", ALLOC.replace("64;", "96;") + FREE.replace("64;", "96;"),
        ALLOC + FREE, BLACKWELL),
    "too few columns, in a register": (
        "tcgen05-columns",
        "    mov.u32 %i, 16;\n" + (ALLOC + FREE).replace("64;", "%i;"),
        "    mov.u32 %i, 32;\n" + (ALLOC + FREE).replace("64;", "%i;"), BLACKWELL),
    "an allocation behind the permit": (
        "tcgen05-permit", PERMIT + ALLOC + FREE, ALLOC + PERMIT + FREE, BLACKWELL),
    "an allocation in a loop behind the permit": (
        "tcgen05-permit", LOOP.format(ALLOC + PERMIT + FREE), LOOP.format(ALLOC + FREE) + PERMIT,
        BLACKWELL),
    "columns that are never freed": ("tcgen05-freed", ALLOC, ALLOC + FREE, BLACKWELL),
    "fewer columns freed": (
        "tcgen05-freed", ALLOC + FREE.replace("64;", "32;"), ALLOC + FREE, BLACKWELL),
    "a load of columns that cannot be allocated": (
        "tcgen05-bounds", ALLOC + TENSOR_LOAD("32x32b.x2", "{%r2, %r3}", "+63") + FREE,
        ALLOC + TENSOR_LOAD("32x32b.x2", "{%r2, %r3}", "+62") + FREE, BLACKWELL),
    "halves too far apart": (
        "tcgen05-bounds",
        ALLOC + TENSOR_LOAD("16x32bx2.x1", "%r2", "").replace("];", "], 64;") + FREE,
        ALLOC + TENSOR_LOAD("16x32bx2.x1", "%r2", "").replace("];", "], 63;") + FREE, BLACKWELL),
    "a load from the middle of a warp's lanes": (
        "tcgen05-lanes", ALLOC + TENSOR_LOAD("32x32b.x1", "%r2", "+0x100000") + FREE,
        ALLOC + TENSOR_LOAD("16x64b.x1", "%r2", "+0x100000") + FREE, BLACKWELL),
    "two groups": (
        "tcgen05-group", ALLOC + FREE.replace("group::1", "group::2"), ALLOC + FREE, BLACKWELL),
    "a sparse descriptor": (
        "tcgen05-sparse", SUM(WORD | 4, ".cta_group::1"), SUM(WORD, ".cta_group::1"), BLACKWELL),
    "M of a pair for one block": (
        "tcgen05-shape", SUM(WORD + (8 << 24), ".cta_group::1"),
        SUM(WORD + (8 << 24), ".cta_group::2"), BLACKWELL),
    "N that .ws does not have": (
        "tcgen05-shape", SUM(WORD - (8 << 17), ".ws.cta_group::1"),
        SUM(WORD, ".ws.cta_group::1"), BLACKWELL),
    "a call beside wgmma": (
        "call", WHOLE + "    call.uni helper;\n", WHOLE, {}),
}  # fmt: skip


def rules_of(text):
    return {finding.rule for finding in audit_ptx(text).findings} - {ASSUMED}


@pytest.mark.parametrize("name", CASES)
def test_broken_lines_are_reported(name):
    rule, broken, _, options = CASES[name]
    assert rule in rules_of(kernel(broken, **options))


@pytest.mark.parametrize("name", CASES)
def test_the_corrected_twin_is_clean(name):
    _, _, twin, options = CASES[name]
    if options.get("buf", 0) > 16384:
        options = {"buf": 200_000}
    assert rules_of(kernel(twin, **options)) == set()


ADVISED = {"stricter-wait", "spare-fence", "spare-barrier"}  # of test_audit_ptx_advice


def test_every_rule_has_a_case():
    assert {case[0] for case in CASES.values()} == set(RULES) - {ASSUMED} - ADVISED


def test_a_symbol_and_an_offset_are_an_address():
    text = """.version 8.0
.target sm_90a
.visible .entry k() .reqntid 32
{
    .shared .align 8 .b64 bars[2];
    .reg .b32 %b;
    .reg .pred %p;
    mov.u32 %b, bars+8;
    mbarrier.init.shared.b64 [%b], 1;
L:  mbarrier.try_wait.parity.shared.b64 %p, [%b], 0;
    @!%p bra L;
    ret;
}
"""
    found = [finding for entry in audit_ptx(text).entries for finding in entry.findings]
    assert "the mbarrier at 0x8" in found[0].message
