"""Tensor memory: which cells a load or store moves, copies from shared memory, allocation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from running import Ran, kernel, run

from mlagen.errors import UnsupportedError

ALLOC = """mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], COLUMNS;
bar.sync 0; ld.shared.u32 %r10, [where];
shr.u32 %r7, %r1, 5; shl.b32 %r7, %r7, 21; add.u32 %r12, %r10, %r7;
"""
FREE = """bar.sync 0; @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, COLUMNS;
ret;"""
HEAD = ".shared .align 4 .b32 where;\n"


def text(body: str, columns: int = 128, parameters: str = "out", head: str = HEAD) -> str:
    whole = (ALLOC + body + FREE).replace("COLUMNS", str(columns))
    return kernel(whole, parameters, head=head, target="sm_100a", registers=".reg .b32 %x<128>;")


def moved(shape: str, times: int, pack: bool = False) -> tuple[np.ndarray, Ran]:
    """Fill lanes with their own number << 16 | column, by 32x32b; load by a shape: [lane][r]."""
    each = {"16x128b": 2, "16x256b": 4}.get(shape, 1) * times
    columns = 128
    lines = [f"add.u32 %x{i}, %r15, {i};" for i in range(columns)]
    names = ", ".join(f"%x{i}" for i in range(columns))
    got = [f"%x{i}" for i in range(each)]
    half = ", 8" if shape == "16x32bx2" else ""
    body = "\n".join([
        "ld.param.u64 %rd1, [out]; shl.b32 %r15, %r1, 16;", *lines,
        f"tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%r12], {{{names}}};",
        "tcgen05.wait::st.sync.aligned; add.u32 %r13, %r12, 0x100000;",
        f"tcgen05.ld.sync.aligned.{shape}.x{times}{'.pack::16b' * pack}.b32 {{{', '.join(got)}}}, "
        f"[{'%r12' if shape == '32x32b' else '%r13'}]{half};",
        "tcgen05.wait::ld.sync.aligned;",
        f"mul.wide.u32 %rd2, %r1, {4 * each}; add.u64 %rd1, %rd1, %rd2;",
        *(f"st.global.u32 [%rd1+{4 * i}], {x};" for i, x in enumerate(got)),
    ])  # fmt: skip
    out = np.zeros((64, each), np.uint32)
    return out, run(text(body), {"out": out}, block=(64, 1, 1))


def cell(shape: str, lane: int, register: int) -> tuple[int, int]:
    """Lane and column of the figures of the ISA; of the second half of the 32 lanes but for
    32x32b."""
    if shape == "32x32b":
        return lane, register
    if shape == "16x32bx2":
        return 16 + lane % 16, register + 8 * (lane // 16)
    line, pair = divmod(lane, 4)
    if shape == "16x64b":
        return 16 + line + 8 * (pair % 2), 2 * register + pair // 2
    if shape == "16x128b":
        return 16 + line + 8 * (register % 2), 4 * (register // 2) + pair
    return 16 + line + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * pair + register % 2


@pytest.mark.parametrize(
    ("shape", "times"),
    [("32x32b", 4), ("16x64b", 8), ("16x128b", 4), ("16x256b", 2), ("16x32bx2", 8)],
)
def test_shapes(shape: str, times: int) -> None:
    out, ran = moved(shape, times)
    assert ran.ended and not ran.findings
    for thread in range(64):
        for register in range(out.shape[1]):
            lane, column = cell(shape, thread % 32, register)
            assert out[thread, register] == (lane + thread // 32 * 32 << 16) | column


def test_pack_takes_the_low_halves_of_two_columns() -> None:
    out, ran = moved("16x64b", 4, pack=True)
    assert not ran.findings
    for lane in range(32):
        for register in range(4):
            _, column = cell("16x64b", lane, register)
            assert out[lane, register] == 2 * column | (2 * column + 1) << 16


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ("128x256b", list(range(128))), ("128x128b", list(range(128))),
        ("64x128b.warpx2::02_13", [*range(64)] * 2),
        ("64x128b.warpx2::01_23", [*range(32)] * 2 + [*range(32, 64)] * 2),
        ("32x128b.warpx4", [*range(32)] * 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["latest", "earliest"])
def test_copies(shape: str, rows: list[int], mode: str) -> None:
    """Rows of 16-byte chunks: core matrices of eight rows, the second chunk 2048 bytes on."""
    n = 8 if "256b" in shape else 4
    got = ", ".join(f"%x{i}" for i in range(n))
    body = f"""ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [tile]; mov.u32 %r2, %r1;
mov.u32 %r3, store; mov.u32 %r9, done; setp.eq.u32 %p2, %r1, 0;
COPY: mul.wide.u32 %rd3, %r2, 16; add.u64 %rd3, %rd2, %rd3; shl.b32 %r4, %r2, 4;
add.u32 %r4, %r4, %r3; ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd3];
st.shared.v4.u32 [%r4], {{%r20, %r21, %r22, %r23}}; add.u32 %r2, %r2, 128;
setp.lt.u32 %p3, %r2, 256; @%p3 bra COPY;
@%p2 mbarrier.init.shared::cta.b64 [done], 1; fence.mbarrier_init.release.cluster;
fence.proxy.async; bar.sync 0; @!%p2 bra WAIT;
shr.u32 %r5, %r3, 4; cvt.u64.u32 %rd4, %r5;
or.b64 %rd4, %rd4, {2048 >> 4 << 16 | 8 << 32 | 1 << 46};
tcgen05.cp.cta_group::1.{shape} [%r10], %rd4;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r9];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 0; @!%p4 bra WAIT;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {{{got}}}, [%r12]; tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %rd5, %r1, {4 * n}; add.u64 %rd1, %rd1, %rd5;
""" + "".join(f"st.global.u32 [%rd1+{4 * i}], %x{i};\n" for i in range(n))
    head = HEAD + ".shared .align 1024 .b8 store[4096];\n.shared .align 8 .b64 done;\n"
    tile = np.random.default_rng(1).integers(0, 1 << 32, (2, 128, 4), dtype=np.uint32)
    out = np.zeros((128, n), np.uint32)
    ran = run(
        text(body, parameters="out, tile", head=head), {"out": out, "tile": tile},
        block=(128, 1, 1), mode=mode,
    )  # fmt: skip
    assert ran.ended and not ran.findings
    want = np.concatenate([tile[0], tile[1]], 1)[rows][:, :n]
    assert np.array_equal(out, want)


LD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r12]; tcgen05.wait::ld.sync.aligned;"


def test_what_nobody_wrote_is_a_nan_and_a_finding() -> None:
    body = "ld.param.u64 %rd1, [out];" + LD + "st.global.u32 [%rd1], %x0;"
    out = np.zeros(1, np.uint32)
    ran = run(text(body), {"out": out}, block=(32, 1, 1))
    assert np.isnan(out.view(np.float32)) and ran.kinds() == ["UNDEFINED_SHARED"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("[where], 128", "[where], 96"), "FAULT_TENSOR"),
        (("[where], 128", "[where], 16"), "FAULT_TENSOR"),
        (("%r10, 128;", "%r10, 64;"), "TENSOR_MISUSE"),
        (("[%r12];", "[%r12+512];"), "FAULT_TENSOR"),
        (("[%r12];", "[%r12+200];"), "TENSOR_MISUSE"),
        (("[%r12];", "[%r13];"), "TENSOR_MISUSE"),
        (("ld.shared.u32", "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned; "
          "ld.shared.u32"), "TENSOR_MISUSE"),
    ],
)  # fmt: skip
def test_misuse_of_allocations(change: tuple[str, str], rule: str) -> None:
    body = "add.u32 %r13, %r12, %r1;" + LD
    made = text(body, parameters="").replace(*change)
    ran = run(made, block=(32, 1, 1))
    assert ran.fault == rule or rule in ran.kinds()


def test_an_allocation_without_room_waits_for_ever() -> None:
    again = "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 512;"
    ran = run(text(again, parameters=""), block=(32, 1, 1))
    assert not ran.ended and not ran.fault


def test_an_allocation_waits_for_room_and_not_behind_the_permit() -> None:
    """Warp 1 asks for all columns, and gets them when warp 0 has freed its own."""
    body = """setp.eq.u32 %p2, %r1, 32; setp.ge.u32 %p3, %r1, 32;
@%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [other], 512;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, COLUMNS;
bar.sync 0; ld.shared.u32 %r10, [other];
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 512; ret;
"""
    made = text(body, parameters="", head=HEAD + ".shared .align 4 .b32 other;\n")
    ran = run(made, block=(64, 1, 1))
    assert ran.ended and not ran.findings
    permit = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nsetp.eq.u32 %p2"
    ran = run(made.replace("setp.eq.u32 %p2", permit), block=(64, 1, 1))
    assert ran.kinds() == ["TENSOR_MISUSE"]


def test_columns_are_used_behind_their_allocation() -> None:
    """Warp 1 knows the address without being told, but not that the columns are there."""
    use = "@!%p1 tcgen05.st.sync.aligned.32x32b.x1.b32 [0x200000], {%r1};\n"
    body = use + "tcgen05.wait::st.sync.aligned;"
    made = text(body, parameters="")
    assert not run(made, block=(64, 1, 1)).findings
    behind = "bar.sync 0; ld.shared.u32 %r10, [where];\n"
    early = made.replace(behind, "").replace(use, use + behind)
    for mode in ("latest", "drawn"):
        ran = run(early, block=(64, 1, 1), mode=mode)
        (found,) = [f for f in ran.findings if f.kind == "RACE"]
        assert (found.c, found.warp, found.other_warp) == (2, 1, 0)
        assert "tcgen05.st" in found.text and "tcgen05.alloc" in found.other


SCALED = "tcgen05.mma.cta_group::1.kind::{} [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (SCALED.format("mxf8f6f4.block_scale"), "products with scales of blocks"),
        (SCALED.format("mxf4.block_scale.scale_vec::2X"), "products with scales of blocks"),
        (SCALED.format("mxf4nvf4.block_scale.scale_vec::4X"), "products with scales of blocks"),
        ("tcgen05.shift.cta_group::1.down [%r1];", "no source says which row goes where"),
        ("tcgen05.shift.cta_group::2.down [%r1];", "no source says which row goes where"),
    ],
)
def test_block_scales_and_shifts_are_refused_by_name(line: str, why: str) -> None:
    name = line.split()[0]
    with pytest.raises(UnsupportedError, match=rf"line \d+: .* {re.escape(name)}: {why}"):
        run(text(line, parameters=""))


@pytest.mark.parametrize(
    "line",
    [
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, 1;",
        "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, 1, %rd3;",
        "tcgen05.cp.cta_group::1.128x256b.b8x16.b6x16_p32 [%r1], %rd1;",
        "tcgen05.cp.cta_group::1.4x256b [%r1], %rd1;",
        "tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1}, [%r2];",
        "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%r1, %r2}, %r3, [%r4];",
        "tcgen05.alloc.sync.aligned.b32 [where], 32;",
        "tcgen05.commit.cta_group::1.b64 [where];",
    ],
)
def test_what_is_not_modelled_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UnsupportedError, match=r"line \d+: .*tcgen05"):
        run(text(line + ";", parameters=""))
