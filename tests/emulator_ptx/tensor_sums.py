"""Many sums of tcgen05.mma: tiles of A, B and C in, D out, in words of bits.

A tile has 64 rows of A, 8 of B and 64 x 8 sums (`InputSet.tiles`); a CTA takes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hopper_arithmetic.inputs import InputSet
from running import kernel, run
from tensor_products import descriptor, word

FIELDS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5,
          "u8": 0, "s8": 1}  # fmt: skip
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "u8": "i8", "s8": "i8"}
SUMS = {"f16": 0, "f32": 1, "s32": 2}
BITS = {"e2m3": 6, "e3m2": 6, "e2m1": 4}


# Rows of 32 bytes as core matrices of 8 rows, the second 16 bytes 128 bytes on. Row 16 w + l of D
# is lane l of warp w.
TEXT = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
ld.param.u64 %rd4, [d]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; and.b32 %r3, %r1, 31;
shr.u32 %r4, %r1, 5; mul.wide.u32 %rd5, %r2, 2048; add.u64 %rd1, %rd1, %rd5;
add.u64 %rd3, %rd3, %rd5; add.u64 %rd4, %rd4, %rd5;
mul.wide.u32 %rd5, %r2, 256; add.u64 %rd2, %rd2, %rd5; mul.wide.u32 %rd6, %r1, 16;
add.u64 %rd1, %rd1, %rd6; add.u64 %rd2, %rd2, %rd6; mov.u32 %r5, tile; shl.b32 %r6, %r1, 4;
add.u32 %r6, %r6, %r5; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd1];
st.shared.v4.u32 [%r6], {%r20, %r21, %r22, %r23};
setp.lt.u32 %p1, %r1, 16; setp.lt.u32 %p2, %r1, 32; setp.eq.u32 %p3, %r1, 0;
@%p1 ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd2];
@%p1 st.shared.v4.u32 [%r6+2048], {%r20, %r21, %r22, %r23};
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 32;
@%p3 mbarrier.init.shared::cta.b64 [done], 1; fence.mbarrier_init.release.cluster;
fence.proxy.async; bar.sync 0;
ld.shared.u32 %r7, [where]; shl.b32 %r8, %r4, 21; add.u32 %r8, %r8, %r7;
shl.b32 %r9, %r4, 4; and.b32 %r10, %r3, 15; add.u32 %r9, %r9, %r10; mul.wide.u32 %rd7, %r9, 32;
add.u64 %rd3, %rd3, %rd7; add.u64 %rd4, %rd4, %rd7; setp.lt.u32 %p4, %r3, 16;
ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];
ld.global.v4.u32 {%r24, %r25, %r26, %r27}, [%rd3+16];
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27};
tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;
@!%p3 bra WAIT; tcgen05.fence::after_thread_sync; and.b32 %r11, %r5, 0xffffff;
shr.u32 %r11, %r11, 4; cvt.u64.u32 %rd8, %r11; add.u64 %rd9, %rd8, DESCRIPTOR;
add.u64 %rd10, %rd9, 128; setp.eq.u32 %p5, 0, 0; mov.u32 %r12, done;
tcgen05.mma.cta_group::1.kind::KIND [%r7], %rd9, %rd10, WORD, %p5;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p6, [done], 0; @!%p6 bra WAIT;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}, [%r8];
tcgen05.wait::ld.sync.aligned;
@%p4 st.global.v4.u32 [%rd4], {%r20, %r21, %r22, %r23};
@%p4 st.global.v4.u32 [%rd4+16], {%r24, %r25, %r26, %r27};
tcgen05.fence::before_thread_sync; bar.sync 0;
@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r7, 32; ret;
"""
HEAD = """.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 done;
.shared .align 4 .b32 where;
"""


def stored(kind: str, words: np.ndarray) -> np.ndarray:
    """Words (tiles, rows, k) as shared memory has them: bytes (tiles, rows * 32)."""
    tiles, rows, _ = words.shape
    if kind in BITS:  # sixteen elements lie together, with room behind
        digits = (words[..., None] >> np.arange(BITS[kind], dtype=np.uint32)) & np.uint32(1)
        packed = np.packbits(
            digits.reshape(tiles, rows, 2, -1).astype(np.uint8), -1, bitorder="little"
        )
        made = np.zeros((tiles, rows, 2, 16), np.uint8)
        made[..., : packed.shape[-1]] = packed
    else:
        size = 32 // words.shape[-1]
        type_of: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
        made = np.ascontiguousarray(words.astype(type_of)).view(np.uint8)
    made = made.reshape(tiles, rows // 8, 8, 2, 16).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(made).reshape(tiles, -1)


def text_of(kinds: InputSet, saturate: bool = False) -> str:
    """The kernel."""
    # A chunk of 16 bytes, 128 bytes apart; 8 rows, 256 bytes apart.
    body = TEXT.replace("DESCRIPTOR", str(descriptor(128, 256)))
    number = word(64, 8, c=SUMS[kinds.c], a=FIELDS[kinds.a], b=FIELDS[kinds.b]) | saturate << 3
    body = body.replace("WORD", str(number)).replace("KIND", KINDS.get(kinds.a, "f8f6f4"))
    return kernel(body, "a, b, c, d", head=HEAD, target="sm_100a")


def sums(
    kinds: InputSet, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, saturate: bool = False
) -> np.ndarray:
    """D's words (tiles, 64, 8) of words A (tiles, 64, k), B (tiles, 8, k) and C (tiles, 64, 8)."""
    d = np.zeros((len(a), 64, 8), np.uint32)
    arguments = {"a": stored(kinds.a, a), "b": stored(kinds.b, b), "c": c.astype(np.uint32), "d": d}
    ran = run(
        text_of(kinds, saturate), arguments, block=(128, 1, 1), grid=(len(a), 1, 1),
        mode="earliest", sanitize=False, max_instructions=None,
    )  # fmt: skip
    assert ran.ended, (ran.fault, ran.fault_text)
    return d & np.uint32(0xFFFF) if kinds.c == "f16" else d
