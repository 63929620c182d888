"""ldmatrix, stmatrix, movmatrix against the layouts of the ISA."""

from __future__ import annotations

import numpy as np
import pytest
from lane_rows import SHARED, at_lane
from running import kernel, run

LANES = np.arange(32)


def fragment(matrix: np.ndarray, transposed: bool) -> np.ndarray:
    """A register of each lane: row lane / 4, columns 2 (lane % 4) and the next."""
    m = matrix.T if transposed else matrix
    row, column = LANES // 4, 2 * (LANES % 4)
    return m[row, column].astype(np.uint32) | m[row, column + 1].astype(np.uint32) << 16


@pytest.mark.parametrize("space", ["shared", "generic"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_there_and_back(count: int, transposed: bool, space: str) -> None:
    """Matrices whose rows lie scattered: loaded, compared with the layout, and stored elsewhere."""
    matrices = np.random.default_rng(count).integers(0, 1 << 16, (count, 8, 8), dtype=np.uint16)
    slots = np.random.default_rng(9).permutation(32)
    memory = np.zeros((32, 8), np.uint16)
    memory[slots[: 8 * count]] = matrices.reshape(-1, 8)
    result, stored = np.zeros((32, count), np.uint32), np.zeros((32, 8), np.uint16)
    registers = ", ".join(f"%r{10 + k}" for k in range(count))
    trans = ".trans" if transposed else ""
    name, address = ("", "%rd12") if space == "generic" else (".shared", "%r3")
    vector = "" if count == 1 else f".v{count}"
    items = f"{{{registers}}}"
    text = kernel(
        f"""{at_lane("p", "%rd1", 16)} {at_lane("o", "%rd2", 4 * count)} {at_lane("s", "%rd3", 4)}
        {at_lane("m", "%rd4", 16)}
        mov.u32 %r2, sh; mad.lo.u32 %r4, %r40, 16, %r2; ld.global.v2.u64 {{%rd5, %rd6}}, [%rd1];
        st.shared.v2.u64 [%r4], {{%rd5, %rd6}}; st.shared.v2.u64 [%r4+512], {{0, 0}};
        bar.warp.sync -1; ld.global.u32 %r5, [%rd3]; mad.lo.u32 %r3, %r5, 16, %r2;
        cvt.u64.u32 %rd12, %r3; cvta.shared.u64 %rd12, %rd12;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}{name}.b16 {items}, [{address}];
        st.global{vector}.u32 [%rd2], {items if count > 1 else "%r10"};
        stmatrix.sync.aligned.m8n8.x{count}{trans}{name}.b16 [{address}+512], {items};
        bar.warp.sync -1; ld.shared.v2.u64 {{%rd5, %rd6}}, [%r4+512];
        st.global.v2.u64 [%rd4], {{%rd5, %rd6}}; ret;""",
        "p, o, s, m",
        head=SHARED,
    )
    arguments = {"p": memory, "o": result, "s": slots.astype(np.uint32), "m": stored}
    ran = run(text, arguments)
    assert ran.ended and ran.kinds() == []
    expected = np.stack([fragment(m, transposed) for m in matrices], 1)
    assert (result == expected).all()
    assert (stored == memory).all()


def test_a_row_outside_shared_memory() -> None:
    """Lanes that have a piece of it get poison, the others what is there."""
    result = np.zeros(32, np.uint32)
    text = kernel(
        f"""{at_lane("o", "%rd2", 4)} mov.u32 %r1, sh; mad.lo.u32 %r1, %r40, 16, %r1;
        st.shared.v4.u32 [%r1], {{%r40, %r40, %r40, %r40}}; setp.eq.u32 %p1, %r40, 3;
        bar.warp.sync -1; @%p1 mov.u32 %r1, 64;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r1]; st.global.u32 [%rd2], %r2; ret;""",
        "o",
        head=SHARED,
    )
    ran = run(text, {"o": result})
    assert ran.ended and ran.kinds() == ["SHARED_BOUNDS"]
    expected = np.where(LANES // 4 == 3, 0x7FFF7FFF, LANES // 4)
    assert (result == expected).all()


def test_a_matrix_is_transposed_in_registers() -> None:
    values = np.random.default_rng(8).integers(0, 1 << 16, (8, 8), dtype=np.uint16)
    given, result = fragment(values, False), np.zeros(32, np.uint32)
    text = kernel(
        f"""{at_lane("p", "%rd1", 4)} {at_lane("o", "%rd2", 4)} ld.global.u32 %r1, [%rd1];
        movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1; st.global.u32 [%rd2], %r1; ret;""",
        "p, o",
    )
    run(text, {"p": given, "o": result})
    assert (result == fragment(values, True)).all()


def test_lanes_apart_are_told() -> None:
    text = kernel(
        """mov.u32 %r1, sh; mov.u32 %r2, %laneid; setp.lt.u32 %p1, %r2, 16; st.shared.u32 [sh], 1;
        @%p1 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3,%r4,%r5,%r6}, [%r1]; ret;""",
        head=SHARED,
    )
    assert "DIVERGED" in run(text).kinds()
