"""Faults of kernels that others reported in public, each in a small kernel of its own, and the
same kernels repaired: an error of the right rule, and none. `reported/*.ptx` is what nvcc 13.0
made of them."""

from pathlib import Path

import pytest
from ptx_snippets import ARM, COMMIT, DONE, FENCE, INIT, MMA, USE, kernel, wait

from mlagen.audit.ptx import audit_ptx
from mlagen.severity import ERROR, of

FOLDER = Path(__file__).parent / "reported"
# The fault, and a rule that tells it.
RULES = {
    "k03_stage_rotation": "smem-war",
    "k05_exit_before_peer_reads": "cluster-end",
    "k06_store_before_peer_begins": "cluster-begin",
    "k07_two_blocks_of_registers": "setmaxnreg-pool",
    "k19_barrier_id_of_two_pairs": "bar-order",
    "k22_another_thread_waits": "smem-war",
    "k24_spin_between_groups": "wgmma-in-flight",
    "k27_pair_of_unequal_loops": "mbarrier-arrivals",
    "k29_tiles_by_a_counter": "deadlock",
}
STORE = "    st.shared.b32 [%at], %r1;\n"
SYNC = "    bar.sync 0;\n"
STAGE = "    @%one cp.async.bulk.global.shared::cta.bulk_group [%g], [%base], 512;\n"
GROUP = "    @{} cp.async.bulk.commit_group;\n"
READ = "    @{} cp.async.bulk.wait_group.read 0;\n"
LAST = READ.format("%one")
PROXY = "    fence.proxy.async{};\n"


def errors(text):
    return {finding.rule for finding in of(audit_ptx(text).findings, ERROR)}


def test_all_cases_are_here():
    assert {path.name.split(".")[0] for path in FOLDER.glob("*.ptx")} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_the_fault_is_an_error(name):
    assert RULES[name] in errors((FOLDER / f"{name}.bad.ptx").read_text())


@pytest.mark.parametrize("name", RULES)
def test_the_repaired_form_is_silent(name):
    report = audit_ptx((FOLDER / f"{name}.ok.ptx").read_text())
    assert not report.findings


def test_a_wait_under_anothers_guard_is_for_its_own_groups():
    """Thread 1 waits, or none at all; thread 0 has stored."""
    body = STORE + PROXY.format("") + SYNC + STAGE + GROUP.format("%one") + "{}" + SYNC + STORE
    assert errors(kernel(body.format(LAST) + LAST)) == set()
    other = "    setp.eq.u32 %p1, %t, 1;\n"
    assert errors(kernel(other + body.format(READ.format("%p1")) + LAST)) == {"smem-war"}
    assert errors(kernel(other + body.format(READ.format("!%one")) + LAST)) == {"smem-war"}


def test_a_wait_of_all_threads_teaches_each_of_its_own_groups():
    """Thread 0 knows that its store has read; no barrier tells the others."""
    body = STORE + PROXY.format("") + SYNC + STAGE + GROUP.format("%one")
    body += "    cp.async.bulk.wait_group.read 0;\n{}" + STORE
    assert errors(kernel(body.format(SYNC))) == set()
    assert errors(kernel(body.format(""))) == {"smem-war"}


def test_a_wait_of_some_threads_for_cp_async():
    body = "    cp.async.ca.shared.global [%at], [%g], 4;\n    cp.async.commit_group;\n"
    body += "    {}cp.async.wait_group 0;\n" + SYNC + "    xor.b32 %r3, %at, 4;\n"
    body += "    ld.shared.b32 %r2, [%r3];\n    cp.async.wait_all;\n"
    assert errors(kernel(body.format(""))) == set()
    assert errors(kernel(body.format("@%one "))) == {"smem-raw"}


@pytest.mark.parametrize(
    ("space", "rules"),
    [
        ("", set()),
        (".shared::cta", set()),
        (".shared::cluster", set()),
        (".global", {"proxy-fence"}),
    ],
)
def test_a_fence_is_for_its_own_space(space, rules):
    body = STORE + PROXY.format(space) + SYNC + FENCE + MMA + COMMIT + DONE
    assert errors(kernel(body)) == rules


@pytest.mark.parametrize(
    ("space", "rules"),
    [("", set()), (".shared::cluster", set()), (".shared::cta", {"proxy-fence"})],
)
def test_a_fence_for_ones_own_block_is_none_for_the_peers_memory(space, rules):
    """Each block stores into the other's operand, which a wgmma there reads."""
    meet = "    barrier.cluster.arrive.release;\n    barrier.cluster.wait.acquire;\n"
    body = "    mov.u32 %r4, %cluster_ctarank;\n    xor.b32 %r4, %r4, 1;\n"
    body += "    mapa.shared::cluster.u32 %r5, %at, %r4;\n" + meet
    body += "    st.shared::cluster.b32 [%r5], %r1;\n" + PROXY.format(space) + meet
    body += FENCE + MMA + COMMIT + DONE
    limits = " .reqntid 128, 1, 1 .reqnctapercluster 2, 1, 1"
    assert errors(kernel(body, limits=limits)) == rules


def test_what_stays_in_flight_over_a_loop_is_not_carried_by_it():
    """ptxas 13.0 serialises only what a loop issues and carries over its own back edge."""
    second = MMA.replace("{%d0, %d1, %d2, %d3}", "{%e0, %e1, %e2, %e3}")
    more = "    .reg .f32 %e<4>;\n"
    one = "    wgmma.wait_group.sync.aligned 1;\n" + USE
    around = "    mov.u32 %i, 0;\nL:\n    st.global.u32 [%g], %i;\n    add.u32 %i, %i, 1;\n"
    around += "    setp.lt.u32 %p1, %i, %n;\n    @%p1 bra L;\n"
    first = FENCE + MMA + COMMIT
    assert errors(kernel(more + first + around + FENCE + second + COMMIT + one + DONE)) == set()
    body = (
        INIT
        + ARM.replace("[%base]", "[%base+8192]")
        + first
        + wait(1)
        + FENCE
        + second
        + COMMIT
        + one
        + DONE
    )
    assert errors(kernel(more + body)) == set()
    carried = "    mov.u32 %i, 0;\nL:\n" + FENCE + second + COMMIT + one + first
    carried += "    add.u32 %i, %i, 1;\n    setp.lt.u32 %p1, %i, %n;\n    @%p1 bra L;\n"
    assert "wgmma-back-edge" in errors(kernel(more + first + carried + DONE))


@pytest.mark.parametrize(
    ("threads", "limits", "most"),
    # What `ptxas -v` 13.0 says a thread starts with: 128, 96, 96.
    [(256, " .minnctapersm 2", 232), (640, "", 168), (256, " .maxnreg 96", 168)],
)
def test_the_pool_is_what_ptxas_gives(threads, limits, most):
    """A warpgroup keeps 24 registers, another one takes all that the first gave back."""
    body = "    @%two bra S;\n    setp.eq.u32 %p1, %wg, 1;\n    @!%p1 bra END;\n"
    body += "    setmaxnreg.inc.sync.aligned.u32 {};\n    bra END;\nS:\n"
    body += "    setmaxnreg.dec.sync.aligned.u32 24;\n"
    limits = f" .reqntid {threads}, 1, 1{limits}"
    assert errors(kernel(body.format(most), limits=limits)) == set()
    assert errors(kernel(body.format(most + 8), limits=limits)) == {"setmaxnreg-pool"}


# Warp 1 copies as often as a word of shared memory says, which a thread has loaded from global
# memory; warp 0 waits `{more}` times more. `{read}`: how they read it.
ROUNDS = """
    @%one ld.volatile.global.u32 %r6, [%g];
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    @%one mbarrier.init.shared::cta.b64 [%bar+8], 1;
    @%one fence.mbarrier_init.release.cluster;
    {handed}
    mov.u32 %i, 0;
    setp.gt.u32 %p1, %t, 31;
    @%p1 bra COPY;
    add.u32 %r7, %r7, {more};
A:  setp.ge.s32 %p2, %i, %r7;
    @%p2 bra END;
    and.b32 %parity, %i, 1;
W:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], %parity;
    @!%wait bra W;
    bar.warp.sync 0xffffffff;
    @%one mbarrier.arrive.shared::cta.b64 _, [%bar+8];
    add.u32 %i, %i, 1;
    bra A;
COPY:
    setp.ne.u32 %p3, %t, 32;
    @%p3 bra END;
B:  setp.ge.s32 %p2, %i, %r7;
    @%p2 bra END;
    and.b32 %parity, %i, 1;
    xor.b32 %parity, %parity, 1;
V:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar+8], %parity;
    @!%wait bra V;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%base], [%g], 1024, [%bar];
    add.u32 %i, %i, 1;
    bra B;
"""
HANDED = {
    "a word": "    @%one st.shared.u32 [%base+2048], %r6;\n    bar.sync 0;\n"
    "    ld.shared.u32 %r7, [%base+2048];\n",
    "a vector": "    @%one st.shared.v2.u32 [%base+2048], {%r5, %r6};\n    bar.sync 0;\n"
    "    ld.shared.v2.u32 {%r8, %r7}, [%base+2048];\n",
    "of what nobody follows": "    cvt.rzi.s32.f32 %r6, %x;\n"
    "    @%one st.shared.u32 [%base+2048], %r6;\n    bar.sync 0;\n"
    "    ld.shared.u32 %r7, [%base+2048];\n",
}


@pytest.mark.parametrize("how", HANDED)
def test_one_datum_decides_in_each_role(how):
    same, more = (ROUNDS.format(handed=HANDED[how], more=number) for number in (0, 1))
    assert errors(kernel(same, threads=64)) == set()
    assert errors(kernel(more, threads=64)) & {"deadlock", "mbarrier-arrivals"}


def test_a_shuffle_gives_one_lanes_datum_to_all():
    """Each warp has its own word: nothing makes them equal."""
    all_lanes = "    shfl.sync.idx.b32 %r7, %r6, 0, 31, -1;\n    bar.sync 0;\n"
    body = ROUNDS.format(handed=all_lanes, more="0")
    assert errors(kernel(body, threads=64)) & {"deadlock", "mbarrier-arrivals", "copy-unwaited"}


PAIR = " .reqntid 128, 1, 1 .reqnctapercluster 2, 1, 1"
PEER = (
    "    mov.u32 %r4, %cluster_ctarank;\n    xor.b32 %r4, %r4, 1;\n"
    "    mapa.shared::cluster.u32 %r5, %at, %r4;\n    mapa.shared::cluster.u32 %r6, %bar, %r4;\n"
    "    mapa.shared::cluster.u32 %r7, %base, %r4;\n    add.u32 %r7, %r7, 4096;\n"
)
MEET = "    barrier.cluster.arrive{};\n    barrier.cluster.wait.acquire;\n"
BEGUN = PEER + INIT + MEET.format(".release")


@pytest.mark.parametrize(
    ("arrives", "rules"),
    [
        (MEET.format(".release"), set()),
        ("    fence.acq_rel.cluster;\n" + MEET.format(".relaxed"), set()),
        (MEET.format(".relaxed"), {"smem-raw"}),
    ],
)
def test_a_relaxed_arrival_releases_what_a_fence_does(arrives, rules):
    body = BEGUN + "    st.shared::cluster.b32 [%r5], %r1;\n" + arrives
    body += "    ld.shared.b32 %r2, [%at];\n" + MEET.format(".release")
    assert errors(kernel(body, limits=PAIR)) == rules


@pytest.mark.parametrize(
    ("end", "rules"), [(MEET.format(".release"), set()), ("", {"cluster-end"})]
)
def test_an_atomic_on_a_block_that_may_have_ended(end, rules):
    body = BEGUN + "    red.relaxed.cluster.shared::cluster.add.u32 [%r5], 1;\n" + end
    assert errors(kernel(body, limits=PAIR)) == rules


@pytest.mark.parametrize(
    ("stored", "waits", "rule"),
    [
        (PROXY.format(""), wait(9), ""),
        ("", wait(9), "proxy-fence"),
        (PROXY.format(""), "", "cluster-end"),
    ],
)
def test_a_copy_into_the_peer_brings_its_bytes(stored, waits, rule):
    """Each block copies 512 bytes of its own to the other, which waits for them."""
    body = BEGUN + "    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;\n" + STORE
    body += stored + SYNC
    body += "    @%one cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    body += " [%r7], [%base], 512, [%r6];\n" + waits
    found = errors(kernel(body, limits=PAIR))
    assert rule in found if rule else found == set()
