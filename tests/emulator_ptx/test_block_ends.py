"""Begin and end of a block: what another block of the cluster does to its shared memory lies
between, and a run of any mode tells where nothing orders it so."""

import numpy as np
import pytest
from running import kernel, run

MODES = [("latest", 0), ("earliest", 0), *(("drawn", seed) for seed in range(6))]
HEAD = ".shared .align 8 .b64 bar;\n.shared .align 8 .b64 done;\n.shared .align 1024 .b8 buf[4096];"
TWO = {"grid": (2, 1, 1), "cluster": (2, 1, 1)}
# Of both blocks: lane 0 makes the mbarriers. %r5 is the other's rank, %r7 its buf, %r8 its bar,
# %r9 its done; %p1 holds for lane 0, %p2 for block 0.
BEGIN = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r2, %cluster_ctarank;
setp.eq.u32 %p2, %r2, 0;
xor.b32 %r5, %r2, 1;
ld.param.u64 %rd1, [p];
mov.u32 %r3, buf;
mov.u32 %r4, bar;
mov.u32 %r6, done;
mapa.shared::cluster.u32 %r7, %r3, %r5;
mapa.shared::cluster.u32 %r8, %r4, %r5;
mapa.shared::cluster.u32 %r9, %r6, %r5;
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
@%p1 mbarrier.init.shared::cta.b64 [done], 1;
mad.lo.u32 %r10, %r1, 4, %r3;
st.shared.u32 [%r10], %r1;
fence.mbarrier_init.release.cluster;
fence.proxy.async;
bar.sync 0;
"""
MEET = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"
ASK = "WAIT{n}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [{bar}], 0;\n"
ASK += "@!%p9 bra WAIT{n};\n"


def wait(bar, n):
    return ASK.format(bar=bar, n=n)


# What block 1 does to block 0's shared memory, which block 0 waits for in none of these.
REACHES = {
    "a load": "@!%p2 ld.shared::cluster.u32 %r20, [%r7];",
    "a store": "@!%p2 st.shared::cluster.u32 [%r7+512], %r1;",
    "an atomic": "@!%p2 atom.shared::cluster.add.u32 %r20, [%r7+512], 1;",
    "a load by a generic address": """
cvt.u64.u32 %rd5, %r7;
cvta.shared.u64 %rd5, %rd5;
@!%p2 ld.u32 %r20, [%rd5];
""",
    "an arrival": """
@%p2 bra J1;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
J1:
""",
    "words sent": """
@%p2 bra J1;
@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7+512], %r1, [%r8];
J1:
""",
    "a copy of shared memory": """
@%p2 bra J1;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
 [%r7+512], [buf], 64, [%r8];
J1:
""",
    "a load to both blocks": """
mov.b16 %h1, 3;
@%p2 bra J1;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
 [buf+512], [%rd1], 64, [bar], %h1;
"""
    + wait("bar", 8)
    + "J1:\n",
}
# Block 0's bar counts the bytes: what comes of an agent is over when the block has waited for it.
BYTES = {"words sent": 4, "a copy of shared memory": 64, "a load to both blocks": 64}


def observed(what):
    """Block 0 waits for its mbarrier: at once, or for the bytes."""
    expect = f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {BYTES.get(what)};\n"
    return "@!%p2 bra J3;\n" + (expect if what in BYTES else "") + wait("bar", 7) + "J3:\n"


def found(body, mode, seed):
    ran = run(kernel(body + "ret;", "p", head=HEAD), {"p": np.zeros(4096, np.uint8)}, mode=mode,
              seed=seed, **TWO)  # fmt: skip
    return ran, ran.kinds()


@pytest.mark.parametrize("mode, seed", MODES)
@pytest.mark.parametrize("what", REACHES)
def test_a_block_ends_while_another_reaches_into_it(what, mode, seed):
    _, kinds = found(BEGIN + MEET + REACHES[what], mode, seed)
    assert "SHARED_GONE" in kinds and "SHARED_EARLY" not in kinds


@pytest.mark.parametrize("what", REACHES)
@pytest.mark.parametrize("mode, seed", MODES[:4])
def test_a_barrier_of_the_cluster_before_the_end(what, mode, seed):
    # It says nothing of what agents do: for these the block itself waits.
    after = observed(what) if what in BYTES else ""
    ran, kinds = found(BEGIN + MEET + REACHES[what] + after + MEET, mode, seed)
    assert ran.ended and not kinds


@pytest.mark.parametrize("mode, seed", MODES[:4])
@pytest.mark.parametrize("what", BYTES)
def test_a_barrier_of_the_cluster_is_no_completion(what, mode, seed):
    assert "SHARED_GONE" in found(BEGIN + MEET + REACHES[what] + MEET, mode, seed)[1]


@pytest.mark.parametrize("what", [*BYTES, "an arrival"])
@pytest.mark.parametrize("mode, seed", MODES[:4])
def test_a_block_waits_for_what_another_brings(what, mode, seed):
    # An mbarrier is enough: a block ends behind what it has waited for. A copy's source is to be
    # there, too, and nobody tells its block that it was read.
    ran, kinds = found(BEGIN + MEET + REACHES[what] + observed(what), mode, seed)
    assert ran.ended
    assert kinds == (["PENDING_AT_EXIT"] if what == "a copy of shared memory" else [])


@pytest.mark.parametrize("mode, seed", MODES)
def test_an_arrival_behind_a_load_is_waited_for(mode, seed):
    read = REACHES["a load"] + "\nbar.warp.sync 0xffffffff;\n" + REACHES["an arrival"]
    ran, kinds = found(BEGIN + MEET + read + observed("an arrival"), mode, seed)
    assert ran.ended and not kinds


@pytest.mark.parametrize(
    "reaches",
    [
        pytest.param(("an arrival", "a load"), id="before it"),
        # Lanes have loaded, and did not meet since: one's arrival says nothing of the others.
        pytest.param(("a load", "an arrival"), id="behind it, of one lane"),
    ],
)
@pytest.mark.parametrize("mode, seed", MODES)
def test_an_arrival_that_does_not_order_a_load(reaches, mode, seed):
    reached = "".join(REACHES[what] for what in reaches)
    _, kinds = found(BEGIN + MEET + reached + observed("an arrival"), mode, seed)
    assert kinds == ["SHARED_GONE"]


@pytest.mark.parametrize("mode, seed", MODES)
def test_a_relaxed_barrier_says_that_blocks_have_begun(mode, seed):
    # And does not order what they did before.
    ran, kinds = found(BEGIN + RELAXED + REACHES["a store"] + MEET, mode, seed)
    assert ran.ended and not kinds
    _, kinds = found(BEGIN + RELAXED + REACHES["a store"] + RELAXED, mode, seed)
    assert kinds == ["SHARED_GONE"]


# The peer's mbarriers and words are made in time by luck of the order alone.
@pytest.mark.parametrize("mode, seed", MODES)
@pytest.mark.parametrize("what", ["a load", "a store", "an atomic", "a load by a generic address"])
def test_another_block_may_not_have_begun(what, mode, seed):
    assert "SHARED_EARLY" in found(BEGIN + REACHES[what] + MEET, mode, seed)[1]


@pytest.mark.parametrize("mode, seed", MODES)
@pytest.mark.parametrize("what", ["an arrival", *BYTES])
def test_an_mbarrier_of_a_block_that_may_not_have_begun(what, mode, seed):
    # Where the other block has not made it yet, the run ends there.
    ran, kinds = found(BEGIN + REACHES[what] + observed(what) + MEET, mode, seed)
    assert "SHARED_EARLY" in kinds or ran.fault == "FAULT_MBARRIER"
