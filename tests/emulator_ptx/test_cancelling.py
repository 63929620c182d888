"""clusterlaunchcontrol: clusters that take the work of those which have not begun."""

from __future__ import annotations

import numpy as np
import pytest
from running import kernel, run

BODY = """ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
mov.u32 %r9, %ctaid.x; mov.u32 %r10, %nctaid.x; mov.u32 %r11, %cluster_ctarank;
mov.u32 %r12, %tid.x; setp.eq.u32 %p1, %r12, 0; setp.eq.u32 %p5, %r11, 0; and.pred %p5, %p5, %p1;
mov.u32 %r3, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
WORK: mad.lo.s32 %r4, %r2, %r10, %r1; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd2, %rd1, %rd2;
@%p1 red.global.add.u32 [%rd2], 1;
fence.proxy.async;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
TRY
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], %r3; @!%p2 bra WAIT;
xor.b32 %r3, %r3, 1; ld.shared.b128 %q1, [answer];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
@!%p3 bra END;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, _, _}, %q1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r2, %q1;
add.u32 %r1, %r1, %r11; bra WORK;
END: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ret;
"""
ONE = (
    "@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
    "[answer], [bar];"
)
ALL = ONE.replace(".b128", ".multicast::cluster::all.b128").replace("%p1", "%p5")


@pytest.mark.parametrize(("cluster", "line"), [(1, ONE), (2, ALL)])
@pytest.mark.parametrize("mode", ["latest", "earliest", "drawn"])
def test_all_work_is_done_once(cluster: int, line: str, mode: str) -> None:
    head = ".shared .align 16 .b8 answer[16];\n.shared .align 8 .b64 bar;\n"
    text = kernel(BODY.replace("TRY", line), "out", head=head, target="sm_100a")
    out = np.zeros((3, 8), np.uint32)
    ran = run(text, {"out": out}, grid=(8, 3, 1), cluster=(cluster, 1, 1), mode=mode)
    assert ran.ended and not ran.findings
    assert (out == 1).all()
    assert len(ran.states) < out.size // cluster  # not all clusters began


def test_an_answer_that_nobody_waits_for_is_a_race() -> None:
    head = ".shared .align 16 .b8 answer[16];\n.shared .align 8 .b64 bar;\n"
    text = kernel(BODY.replace("TRY", ONE), "out", head=head, target="sm_100a")
    text = text.replace("@!%p2 bra WAIT;", "")
    ran = run(text, {"out": np.zeros(8, np.uint32)}, grid=(8, 1, 1))
    assert "RACE" in ran.kinds()
