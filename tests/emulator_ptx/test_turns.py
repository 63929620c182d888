"""Clusters in turns: spinning ones give way, deadlocks are told, memory is bounded."""

import numpy as np
import pytest
from running import kernel

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.ptx.host import grid as grid_module

BLOCK = (32, 1, 1)
# Block b waits until word 0 is its number, then makes it that of the one before.
BACKWARDS = """ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x;
SPIN: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra SPIN;
mov.u32 %r5, %tid.x; setp.ne.u32 %p2, %r5, 0; @%p2 bra END;
sub.u32 %r3, %r1, 1; st.release.gpu.global.u32 [%rd1], %r3; END: ret;"""


def run(body, array, grid, settings=None, **more):
    text = kernel(body, "p", **{k: more.pop(k) for k in ("head",) if k in more})
    asked = Launch((grid, 1, 1), BLOCK, [Argument(0, Buffer("p", array))], **more)
    return emulate(text, asked, settings or Settings())


@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
def test_blocks_that_wait_for_later_ones_give_way(mode):
    array = np.array([5], np.uint32)
    result = run(BACKWARDS, array, 6, Settings(mode=mode))
    assert not result.findings and array[0] == 0xFFFFFFFF


def test_what_nobody_writes_is_a_deadlock():
    array = np.array([9], np.uint32)
    (finding,) = run(BACKWARDS, array, 3).findings
    assert finding.kind == "deadlock" and "something in memory" in finding.message
    assert "(2, 0, 0):0" in finding.message and finding.asm  # the blocks that wait


def test_clusters_beyond_what_is_held_are_a_deadlock(monkeypatch):
    monkeypatch.setattr(grid_module, "RESIDENT_BYTES", 1)
    (finding,) = run(BACKWARDS, np.array([5], np.uint32), 6).findings
    assert finding.kind == "deadlock"


def test_a_barrier_that_a_warp_leaves_out_is_a_deadlock_with_who_is_there():
    body = """mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 31; @%p1 bra END;
    barrier.sync 3, 64; END: ret;"""
    asked = Launch((1, 1, 1), (64, 1, 1), [Argument(0, np.uint64(0))])
    findings = emulate(kernel(body, "p"), asked).findings
    (finding,) = [f for f in findings if f.kind == "deadlock"]
    assert "barrier 3, where 32 of 64 threads are" in finding.message
    assert finding.asm.startswith("barrier.sync 3")


def test_an_mbarrier_without_its_bytes_is_a_deadlock_that_says_what_it_misses():
    body = """mov.u32 %r1, m; mbarrier.init.shared::cta.b64 [m], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 256;
    W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [m], 0; @!%p1 bra W; ret;"""
    text = kernel(body, "p", head=".shared .align 8 .b64 m;")
    asked = Launch((1, 1, 1), (1, 1, 1), [Argument(0, np.uint64(0))])
    (finding,) = [f for f in emulate(text, asked).findings if f.kind == "deadlock"]
    assert "0 arrivals and 256 bytes" in finding.message and "(m + 0x0)" in finding.message


def test_a_block_that_runs_on_after_a_finding_is_stopped(monkeypatch):
    monkeypatch.setattr(grid_module, "_GRACE", 10_000)
    found = run("add.u32 %r1, %r2, 1; L: bra L;", np.zeros(1, np.uint32), 1).findings
    assert [f.kind for f in found] == ["undefined-register", "not-ended"]


def test_an_interrupt_ends_the_run():
    def interrupt(count):
        raise KeyboardInterrupt

    text = kernel("L: bra L;", "p")
    asked = Launch((4, 1, 1), BLOCK, [Argument(0, np.uint64(0))])
    for threads in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            emulate(text, asked, Settings(threads=threads), executed=interrupt)
