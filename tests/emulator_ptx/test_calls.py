"""Functions: their parameters, and lanes that part inside."""

from __future__ import annotations

import numpy as np
from running import kernel, run

STEPS = """.func (.param .b32 made) steps(.param .b32 x, .param .align 16 .b8 pair[16])
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.b32 %r1, [x]; ld.param.v2.b64 {%rd1, %rd2}, [pair]; mov.u32 %r2, 0;
setp.eq.u32 %p1, %r1, 5; @%p1 st.param.b32 [made], 77; @%p1 ret;
again: setp.eq.u32 %p2, %r1, 0; @%p2 bra done; sub.u32 %r1, %r1, 1; add.u32 %r2, %r2, 3;
bra again;
done: cvt.u32.u64 %r3, %rd1; cvt.u32.u64 %r4, %rd2; add.u32 %r2, %r2, %r3; sub.u32 %r2, %r2, %r4;
st.param.b32 [made], %r2; ret;
}"""


def test_parameters_and_lanes_that_part() -> None:
    """Each lane takes another number of steps; one returns early; both calls have their own."""
    result = np.zeros((2, 32), np.uint32)
    call = """{ .param .b32 a0; .param .align 16 .b8 a1[16]; .param .b32 back;
    st.param.b32 [a0], %r1; st.param.v2.b64 [a1], {%rd2, %rd3};
    call.uni (back), steps, (a0, a1); ld.param.b32 %r5, [back]; }"""
    text = kernel(
        f"""mov.u32 %r1, %laneid; ld.param.u64 %rd1, [o]; mad.wide.u32 %rd1, %r1, 4, %rd1;
        mov.u64 %rd2, 1000; mov.u64 %rd3, 7; {call} st.global.u32 [%rd1], %r5;
        mov.u64 %rd2, 2000; xor.b32 %r1, %r1, 31; {call} st.global.u32 [%rd1+128], %r5; ret;""",
        "o",
        head=STEPS,
    )
    ran = run(text, {"o": result})
    assert ran.ended and not ran.findings
    lanes = np.arange(32)
    assert (result[0] == np.where(lanes == 5, 77, 993 + 3 * lanes)).all()
    assert (result[1] == np.where(lanes == 26, 77, 1993 + 3 * (31 - lanes))).all()
