"""mbarriers of the PTX emulator: phases, waits, bytes, and what may not be done to them."""

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a

MODES = ("latest", "earliest", "drawn")
HEAD = ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 buf[1024];"
START = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
"""


def wait(parity, name="W"):
    return (
        f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], {parity};\n@!%p9 bra {name};"
    )


def rules(ran):
    return sorted(found.a for found in ran.findings if found.kind == "MBARRIER_MISUSE")


@pytest.mark.parametrize("mode", MODES)
def test_phases_alternate_between_a_producer_and_a_consumer(mode):
    # Warp 0 writes 5 values, warp 1 adds them up; `bar` says written, `free` says read.
    text = kernel(
        START
        + """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
@%p1 mbarrier.init.shared::cta.b64 [free], 32;
bar.sync 0;
ld.param.u64 %rd1, [p];
mov.u32 %r2, 0;  // round
mov.u32 %r3, 0;  // sum
setp.ge.u32 %p2, %r1, 32;
@%p2 bra CONSUME;
PRODUCE:
and.b32 %r4, %r2, 1;
xor.b32 %r4, %r4, 1;
F: mbarrier.try_wait.parity.shared::cta.b64 %p9, [free], %r4;
@!%p9 bra F;
mad.lo.u32 %r5, %r2, 10, 7;
@%p1 st.shared.u32 [buf], %r5;
@%p1 mbarrier.arrive.shared::cta.b64 _, [bar];
add.u32 %r2, %r2, 1;
setp.lt.u32 %p3, %r2, 5;
@%p3 bra PRODUCE;
ret;
CONSUME:
and.b32 %r4, %r2, 1;
W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], %r4;
@!%p9 bra W;
ld.shared.u32 %r5, [buf];
mbarrier.arrive.shared::cta.b64 %rd3, [free];
add.u32 %r3, %r3, %r5;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p3, %r2, 5;
@%p3 bra CONSUME;
setp.eq.u32 %p4, %r1, 32;
@%p4 st.global.u32 [%rd1], %r3;
ret;
""",
        "p",
        head=HEAD + "\n.shared .align 8 .b64 free;",
    )
    out = np.zeros(1, np.uint32)
    ran = run(text, {"p": out}, block=(64, 1, 1), mode=mode)
    assert ran.ended and not ran.findings
    assert out[0] == sum(10 * i + 7 for i in range(5))


@pytest.mark.parametrize("mode", MODES)
def test_a_state_is_waited_for_and_counts_what_was_pending(mode):
    text = kernel(
        START
        + """
@%p1 mbarrier.init.shared::cta.b64 [bar], 32;
bar.sync 0;
mbarrier.arrive.shared::cta.b64 %rd2, [bar];
L: mbarrier.test_wait.shared::cta.b64 %p2, [bar], %rd2;
@!%p2 bra L;
mbarrier.pending_count.b64 %r3, %rd2;
ld.param.u64 %rd1, [p];
mad.wide.u32 %rd1, %r1, 4, %rd1;
st.global.u32 [%rd1], %r3;
ret;
""",
        "p",
        head=HEAD,
    )
    out = np.zeros(32, np.uint32)
    ran = run(text, {"p": out}, mode=mode)
    assert ran.ended and not ran.findings
    assert sorted(out) == list(range(1, 33))


def test_bytes_end_a_phase_only_with_the_arrivals():
    text = kernel(
        START
        + """
@!%p1 ret;
mbarrier.init.shared::cta.b64 [bar], 2;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 64;
mbarrier.arrive.shared::cta.b64 _, [bar];
mbarrier.arrive.shared::cta.b64 _, [bar];
mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 48;
mbarrier.test_wait.parity.shared::cta.b64 %p3, [bar], 0;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;
mbarrier.test_wait.parity.shared::cta.b64 %p4, [bar], 0;
mbarrier.test_wait.parity.shared::cta.b64 %p5, [bar], 1;
selp.u32 %r2, 1, 0, %p2;
selp.u32 %r3, 2, 0, %p3;
selp.u32 %r4, 4, 0, %p4;
selp.u32 %r5, 8, 0, %p5;
or.b32 %r2, %r2, %r3;
or.b32 %r2, %r2, %r4;
or.b32 %r2, %r2, %r5;
ld.param.u64 %rd1, [p];
st.global.u32 [%rd1], %r2;
ret;
""",
        "p",
        head=HEAD,
    )
    out = np.zeros(1, np.uint32)
    ran = run(text, {"p": out})
    assert ran.ended and not ran.findings
    assert out[0] == 4


def test_a_dropped_arrival_is_missing_from_later_phases_too():
    text = kernel(
        START
        + """
@!%p1 ret;
mbarrier.init.shared::cta.b64 [bar], 3;
mbarrier.arrive_drop.shared::cta.b64 _, [bar], 2;
mbarrier.arrive.shared::cta.b64 _, [bar];
mbarrier.arrive.shared::cta.b64 _, [bar];
"""
        + wait(1)
        + "ret;",
        head=HEAD,
    )
    assert run(text).ended


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_that_nobody_ends_gives_way(mode):
    text = kernel(
        START + "@%p1 mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n" + wait(0) + "ret;",
        head=HEAD,
    )
    ran = run(text, mode=mode, max_instructions=5000)
    assert ran.code == y.R_YIELD and not ran.fault


def test_a_try_wait_may_answer_no_where_nothing_else_can_happen():
    text = kernel(
        START
        + """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;
ld.param.u64 %rd1, [p];
selp.u32 %r2, 5, 6, %p9;
st.global.u32 [%rd1], %r2;
ret;
""",
        "p",
        head=HEAD,
    )
    out = np.zeros(1, np.uint32)
    ran = run(text, {"p": out})
    assert ran.ended and out[0] == 6


@pytest.mark.parametrize(
    ("body", "rule", "fault"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [bar];", a.NOT_INITIALISED, "FAULT_MBARRIER"),
        (
            "mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.inval.shared::cta.b64 [bar];"
            "mbarrier.arrive.shared::cta.b64 _, [bar];",
            a.NOT_INITIALISED,
            "FAULT_MBARRIER",
        ),
        ("mbarrier.init.shared::cta.b64 [bar], 0;", a.BAD_COUNT, "FAULT_MBARRIER"),
        (
            "mbarrier.init.shared::cta.b64 [bar], 2; st.shared.u32 [bar], 1;"
            "mbarrier.arrive.shared::cta.b64 _, [bar];",
            a.OVERWRITTEN,
            "",
        ),
        (
            "mbarrier.init.shared::cta.b64 [bar], 2; mbarrier.arrive.shared::cta.b64 _, [bar], 3;",
            a.TOO_MANY_ARRIVALS,
            "",
        ),
        (
            "mbarrier.init.shared::cta.b64 [bar], 2;"
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048576;",
            a.TOO_MANY_BYTES,
            "",
        ),
        (
            "mbarrier.init.shared::cta.b64 [bar], 2; mbarrier.init.shared::cta.b64 [bar], 2;",
            a.INITIALISED_TWICE,
            "",
        ),
        (
            "mbarrier.init.shared::cta.b64 [bar], 1;"
            "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd2, [bar], 1;",
            a.NO_COMPLETE,
            "",
        ),
        (
            "mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.arrive.shared::cta.b64 %rd2, [bar];"
            "mbarrier.arrive.shared::cta.b64 _, [bar]; mbarrier.arrive.shared::cta.b64 _, [bar];"
            "mbarrier.test_wait.shared::cta.b64 %p2, [bar], %rd2;",
            a.STALE_STATE,
            "",
        ),
    ],
)
def test_misuse_is_found(body, rule, fault):
    ran = run(kernel(START + "@!%p1 ret;" + body + "ret;", head=HEAD))
    assert rules(ran) == [rule] and ran.fault == fault
    assert ran.ended == (fault == "")


@pytest.mark.parametrize(
    ("address", "fault"),
    [("4", "FAULT_SHARED"), ("0x7fffff00", "FAULT_SHARED"), ("bar+4", "FAULT_ALIGN")],
)
def test_an_address_that_is_none_stops_the_run(address, fault):
    ran = run(kernel(f"mbarrier.init.shared::cta.b64 [{address}], 1; ret;", head=HEAD))
    assert ran.fault == fault


def test_more_mbarriers_than_slots_is_told():
    text = kernel(
        """
mov.u32 %r1, buf;
mov.u32 %r2, 0;
L: mbarrier.init.shared::cta.b64 [%r1], 1;
add.u32 %r1, %r1, 8;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, 65;
@%p1 bra L;
ret;
""",
        head=HEAD,
    )
    assert run(text, block=(1, 1, 1)).fault == "FAULT_ROOM"
