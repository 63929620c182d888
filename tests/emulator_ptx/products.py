"""Kernels of one matrix instruction, for the tests beside this: tiles of A, B and C in, D out.

A tile has 64 rows of A, 8 of B and 64 x 8 sums, in words of bits; a CTA of four warps takes one.
wgmma reads A and B as K-major rows of 32 bytes without a swizzle; mma.sync takes 16 rows a warp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hopper_arithmetic.inputs import InputSet
from running import kernel, run

WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


HEAD = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
mov.u32 %r50, %tid.x; mov.u32 %r51, %ctaid.x; and.b32 %r52, %r50, 31; shr.u32 %r53, %r50, 5;
shr.u32 %r54, %r52, 2; and.b32 %r55, %r52, 3; mad.lo.s32 %r54, %r53, 16, %r54;
"""  # %r54: row of D, %r55: number in its four lanes


def addresses(k_bytes: int, c_bytes: int) -> str:
    """The tile's own places of A, B, C and D."""
    lines = [
        ("%rd1", 64 * k_bytes), ("%rd2", 8 * k_bytes), ("%rd3", 512 * c_bytes),
        ("%rd4", 512 * c_bytes),
    ]  # fmt: skip
    return "\n".join(
        f"mul.wide.u32 %rd10, %r51, {size}; add.s64 {name}, {name}, %rd10;" for name, size in lines
    )


def sums(c_bytes: int, store: bool) -> str:
    """C from memory into %r0…, or D to memory."""
    base = "%rd4" if store else "%rd3"
    lines = [f"mul.lo.s32 %r56, %r54, {8 * c_bytes}; mad.lo.s32 %r56, %r55, {2 * c_bytes}, %r56;",
             "cvt.u64.u32 %rd11, %r56;", f"add.s64 %rd11, {base}, %rd11;"]  # fmt: skip
    step = 64 * c_bytes  # eight rows
    for half in range(2):
        for e in range(1 if c_bytes == 2 else 2):
            register, at = f"%r{half * (1 if c_bytes == 2 else 2) + e}", half * step + 4 * e
            lines.append(
                f"st.global.b32 [%rd11+{at}], {register};" if store
                else f"ld.global.b32 {register}, [%rd11+{at}];"
            )  # fmt: skip
    return "\n".join(lines)


def wgmma(kinds: InputSet, kind: str, scale: tuple[int, int] = (1, 1)) -> str:
    """A kernel of one wgmma. `kind`: "shared", "registers", "no c" or "saturated"."""
    c = kinds.c_bytes
    fragment = kind == "registers"
    lines = [HEAD, addresses(32, c), sums(c, False)]
    # 64 rows of A and 8 of B, two chunks each: core matrices of 8 rows one after the other.
    lines.append("""shl.b32 %r58, %r50, 4; cvt.u64.u32 %rd12, %r58; add.s64 %rd13, %rd1, %rd12;
    shr.u32 %r59, %r50, 1; and.b32 %r60, %r50, 1; shr.u32 %r61, %r59, 3; and.b32 %r62, %r59, 7;
    mul.lo.s32 %r63, %r61, 256; mad.lo.s32 %r63, %r60, 128, %r63; mad.lo.s32 %r63, %r62, 16, %r63;
    mov.u32 %r49, sh; add.s32 %r63, %r63, %r49; ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd13];
    st.shared.v4.b32 [%r63], {%r10, %r11, %r12, %r13}; setp.lt.u32 %p1, %r50, 16;
    add.s64 %rd13, %rd2, %rd12; @%p1 ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd13];
    @%p1 st.shared.v4.b32 [%r63+2048], {%r10, %r11, %r12, %r13};
    fence.proxy.async.shared::cta; bar.sync 0;""")  # fmt: skip
    if fragment:
        lines.append("mul.lo.s32 %r57, %r54, 32; mad.lo.s32 %r57, %r55, 4, %r57;"
                     "cvt.u64.u32 %rd14, %r57; add.s64 %rd14, %rd1, %rd14;")  # fmt: skip
        for number in range(4):
            at = 256 * (number & 1) + 16 * (number >> 1)
            lines.append(f"ld.global.b32 %r{20 + number}, [%rd14+{at}];")
    lines.append("""shr.u32 %r48, %r49, 4; cvt.u64.u32 %rd20, %r48;
    or.b64 %rd20, %rd20, 68720001024; add.s64 %rd21, %rd20, 128; wgmma.fence.sync.aligned;""")
    d = ", ".join(f"%r{n}" for n in range(2 if c == 2 else 4))
    a = "{%r20, %r21, %r22, %r23}" if fragment else "%rd20"
    k = kinds.k
    adds = 0 if kind == "no c" else 1
    rest = "" if kinds.integer else f", {scale[0]}, {scale[1]}"
    if kinds.element_bytes == 2:
        rest += ", 0" if fragment else ", 0, 0"
    tail = ".satfinite" if kind == "saturated" else ""
    lines.append(
        f"setp.eq.u32 %p2, {adds}, 1;\n"
        f"wgmma.mma_async.sync.aligned.m64n8k{k}.{kinds.c}.{kinds.a}.{kinds.b}{tail} "
        f"{{{d}}}, {a}, %rd21, %p2{rest};\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )
    lines += [sums(c, True), "ret;"]
    return kernel("\n".join(lines), "a, b, c, d", head=".shared .align 1024 .b8 sh[4096];")


def mma(kinds: InputSet, depth: int, saturated: bool = False) -> str:
    """A kernel of one mma.sync a warp; A and B have rows of `depth` elements."""
    c = kinds.c_bytes
    row = depth * kinds.element_bytes
    many = row // 8  # registers of A
    lines = [HEAD, addresses(row, c), sums(c, False)]
    lines.append(f"mul.lo.s32 %r57, %r54, {row}; mad.lo.s32 %r57, %r55, 4, %r57;"
                 "cvt.u64.u32 %rd14, %r57; add.s64 %rd14, %rd1, %rd14;"
                 f"shr.u32 %r58, %r52, 2; mul.lo.s32 %r58, %r58, {row};"
                 "mad.lo.s32 %r58, %r55, 4, %r58; cvt.u64.u32 %rd15, %r58;"
                 "add.s64 %rd15, %rd2, %rd15;")  # fmt: skip
    for number in range(many):
        at = 8 * row * (number & 1) + 16 * (number >> 1)
        lines.append(f"ld.global.b32 %r{20 + number}, [%rd14+{at}];")
    for number in range(many // 2):
        lines.append(f"ld.global.b32 %r{30 + number}, [%rd15+{16 * number}];")
    d = ", ".join(f"%r{n}" for n in range(2 if c == 2 else 4))
    a = ", ".join(f"%r{20 + n}" for n in range(many))
    b = ", ".join(f"%r{30 + n}" for n in range(many // 2))
    tail = ".satfinite" if saturated else ""
    lines.append(
        f"mma.sync.aligned.m16n8k{depth}.row.col{tail}.{kinds.c}.{kinds.a}.{kinds.b}.{kinds.c} "
        f"{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
    )
    lines += [sums(c, True), "ret;"]
    return kernel("\n".join(lines), "a, b, c, d")


def results(text: str, kinds: InputSet, tiles: Any, *, exact: bool = True) -> np.ndarray:
    """D of all tiles, as words (count, 64, 8)."""
    a, b, c = tiles
    element, total = WORDS[kinds.element_bytes], WORDS[kinds.c_bytes]
    d = np.zeros((len(c), 64, 8), total)
    arguments = {
        "a": np.ascontiguousarray(a.astype(element)), "b": np.ascontiguousarray(b.astype(element)),
        "c": np.ascontiguousarray(c.astype(total)), "d": d,
    }  # fmt: skip
    ran = run(text, arguments, grid=(len(c), 1, 1), block=(128, 1, 1), exact=exact)
    assert ran.ended and not ran.findings, (ran.fault_text, ran.findings[:3])
    return d.astype(np.uint32)
