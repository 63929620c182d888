"""CTA clusters: what blocks do to each other's shared memory and mbarriers."""

import pytest

from mlagen.audit.ptx import Given, audit_ptx
from mlagen.errors import ConfigError
from mlagen.severity import ASSUMED, UNPROVED

# Thread by thread, two blocks send 512 bytes to each other and read what came; twice. `{}`: what
# the tests take away. The mbarriers: full (one arrival and bytes), empty (the peer's 128 threads).
EXCHANGE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 128, 1, 1 {cluster}
{{
    .shared .align 1024 .b8 buf[512];
    .shared .align 8 .b64 bars[2];
    .reg .pred %one, %wait;
    .reg .b32 %t, %rank, %peer, %base, %bar, %at, %there, %full, %empty, %x, %round, %odd;
    mov.u32 %t, %tid.x;
    mov.u32 %base, buf;
    mov.u32 %bar, bars;
    mov.u32 %rank, %cluster_ctarank;
    xor.b32 %peer, %rank, 1;
    shl.b32 %at, %t, 2;
    add.u32 %at, %at, %base;
    setp.eq.u32 %one, %t, 0;
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    @%one mbarrier.init.shared::cta.b64 [%bar+8], 128;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    {address}
    mapa.shared::cluster.u32 %full, %bar, %peer;
    add.u32 %empty, %full, 8;
    mov.u32 %round, 0;
LOOP:
    and.b32 %odd, %round, 1;
    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
    {released}
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%there], %t, [%full];
    {arrived}
    ld.shared.u32 %x, [%at];
    {release}
    add.u32 %round, %round, 1;
    setp.lt.u32 %wait, %round, 4;
    @%wait bra LOOP;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    ret;
}}
"""
PARTS = {
    "cluster": ".reqnctapercluster 2, 1, 1",
    "address": "mapa.shared::cluster.u32 %there, %at, %peer;",
    "released": """xor.b32 %x, %odd, 1;
E:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar+8], %x;
    @!%wait bra E;""",
    "arrived": """F:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], %odd;
    @!%wait bra F;""",
    "release": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%empty];",
}


def rules(given=None, **changed):
    report = audit_ptx(EXCHANGE.format(**{**PARTS, **changed}), given or Given())
    return {finding.rule for finding in report.findings}, report


def test_an_exchange_between_blocks_is_followed():
    found, report = rules()
    assert not found and not report.unchecked
    assert report.entries[0].facts["cluster"] == 2


def test_the_peer_is_a_turned_bit_of_an_address_too():
    assert rules(address="xor.b32 %there, %at, 16777216;")[0] == set()


def test_a_read_without_a_wait_for_the_peers_store():
    assert rules(arrived="")[0] & {"smem-raw", "mbarrier-arrivals", "mbarrier-order"}


def test_a_store_before_the_peer_has_read():
    assert "smem-war" in rules(released="")[0]


def test_no_release_of_the_peer_is_a_deadlock():
    assert rules(release="")[0] & {"deadlock", "mbarrier-arrivals"}


def test_a_release_of_ones_own_block_is_none_of_the_peers():
    """It counts, but nothing tells the peer's stores from these reads."""
    found, _ = rules(release="mbarrier.arrive.shared::cta.b64 _, [%bar+8];")
    assert "smem-war" in found


def test_who_is_told_with_the_block():
    _, report = rules(arrived="")
    assert any(f.who.startswith("block 1, ") for f in report.findings) or any(
        "block 1" in f.message for f in report.findings
    )


def test_the_blocks_of_a_cluster():
    found, report = rules(cluster="")
    assert found == {ASSUMED} and report.entries[0].facts["cluster"] == 2
    (guess,) = report.findings
    assert guess.severity == UNPROVED and "taken to have 2 blocks (--cluster" in guess.message
    told = rules(Given(cluster=2), cluster="")
    assert not told[0] and not told[1].unchecked
    assert rules(cluster=".maxclusterrank 2")[1].entries[0].facts["cluster"] == 2
    with pytest.raises(ConfigError, match="a CTA cluster of 64 blocks; it has up to 16"):
        rules(Given(cluster=64))


# Block 0 copies 1,024 bytes to both blocks, of which each expects them.
MULTICAST = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 src) .reqntid 128, 1, 1 .reqnctapercluster 2, 1, 1
{{
    .shared .align 1024 .b8 buf[1024];
    .shared .align 8 .b64 bar[1];
    .reg .pred %one, %wait, %first;
    .reg .b32 %t, %rank, %base, %bar, %at, %x;
    .reg .b16 %mask;
    .reg .b64 %g;
    mov.u32 %t, %tid.x;
    mov.u32 %base, buf;
    mov.u32 %bar, bar;
    mov.u32 %rank, %cluster_ctarank;
    mov.b16 %mask, {mask};
    ld.param.u64 %g, [src];
    shl.b32 %at, %t, 3;
    add.u32 %at, %at, %base;
    setp.eq.u32 %one, %t, 0;
    setp.eq.and.u32 %first, %rank, 0, %one;
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%base], [%g], 1024, [%bar], %mask;
W:  mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], 0;
    @!%wait bra W;
    ld.shared.u32 %x, [%at];
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    ret;
}}
"""


def test_a_copy_to_several_blocks():
    report = audit_ptx(MULTICAST.format(mask=3))
    assert not report.findings and not report.unchecked


@pytest.mark.parametrize("mask", [1, 2])
def test_a_copy_that_leaves_a_block_out(mask):
    report = audit_ptx(MULTICAST.format(mask=mask))
    assert {finding.rule for finding in report.findings} == {"mbarrier-transaction"}
