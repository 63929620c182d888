"""Kernels of tcgen05.mma, for the tests beside this.

Each CTA copies an image of its shared memory from global memory; one thread multiplies; all 128
threads bring the 128 lanes of tensor memory to `out`, as [CTA][lane][column] words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from running import Ran, kernel, run

A_AT, B_AT = 0, 32768  # bytes of an image; B's place
IMAGE = 65536
Place = Callable[[int, int], int]  # row, byte of K → byte of a tile


def plain(leading: int, stride: int) -> Place:
    """K-major without a swizzle: 8 rows of 16 bytes lie together."""
    return lambda row, at: row // 8 * stride + row % 8 * 16 + at // 16 * leading + at % 16


def swizzled(width: int) -> Place:
    """K-major rows of `width` bytes, eight of them a pattern."""

    def place(row: int, at: int) -> int:
        where = row // 8 * 8 * width + row % 8 * width + at
        return where ^ (where >> 7 & (width // 16 - 1)) << 4

    return place


def descriptor(leading: int, stride: int, mode: int = 0) -> int:
    """All of a matrix descriptor but its address."""
    return leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | mode << 61


@dataclass(frozen=True)
class Product:
    """One tcgen05.mma. `a`, `b`: descriptors without addresses; `a_bytes`, `b_bytes`: image of each
    CTA. `cells`: A as words of tensor memory [lane][8], then without `a`. `before`: D's words
    [lane][column] before it."""

    word: int
    columns: int  # of D in tensor memory
    a: int = 0
    b: int = 0
    images: tuple[np.ndarray, ...] = ()
    kind: str = "f16"
    group: int = 1
    weights: bool = False
    cells: np.ndarray | None = None
    before: np.ndarray | None = None
    masks: tuple[int, ...] = ()
    scale: int | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    without: str = ""  # the line that has this is left out
    instead: tuple[str, str] = ("", "")  # words that are replaced

    def text(self) -> str:
        """The kernel."""
        ctas = self.group
        group = f"cta_group::{self.group}"
        where_a = "[%r11]" if self.cells is not None else "%rd11"
        masks = ""
        if self.masks:
            masks = ", {" + ", ".join(map(str, self.masks)) + "}"
        scale = "" if self.scale is None else f", {self.scale}"
        ws = ".ws" if self.weights else ""
        product = f"tcgen05.mma{ws}.{group}.kind::{self.kind} [%r10], {where_a}, %rd12"
        commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        commit += ".multicast::cluster.b64 [%r9], %h1;" if ctas == 2 else ".b64 [%r9];"
        n = self.columns
        names = [f"%x{i}" for i in range(n)]
        lines = [
            "ld.param.u64 %rd1, [image]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [before];",
            "ld.param.u64 %rd4, [cells];",
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u16 %h1, 3;",
            "mov.u32 %r3, tile; mov.u32 %r9, done; and.b32 %r4, %r9, 0xfeffffff;",
            f"mul.wide.u32 %rd5, %r2, {IMAGE}; add.u64 %rd1, %rd1, %rd5;",
            "setp.lt.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r2, 0;",
            "and.pred %p2, %p2, %p3; setp.eq.u32 %p5, %r1, 0;",
            "mov.u32 %r5, %r1;",
            "COPY: mul.wide.u32 %rd6, %r5, 16; add.u64 %rd7, %rd1, %rd6;",
            "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd7]; shl.b32 %r6, %r5, 4;",
            "add.u32 %r6, %r6, %r3; st.shared.v4.u32 [%r6], {%r20, %r21, %r22, %r23};",
            f"add.u32 %r5, %r5, 128; setp.lt.u32 %p4, %r5, {IMAGE // 16}; @%p4 bra COPY;",
            f"@%p1 tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [where], 512;",
            f"@%p1 tcgen05.relinquish_alloc_permit.{group}.sync.aligned;",
            "@%p5 mbarrier.init.shared::cta.b64 [done], 1;",
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async;",
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
            "ld.shared.u32 %r10, [where]; add.u32 %r11, %r10, 256;",
            # each warp's lanes: D, and A
            "shr.u32 %r7, %r1, 5; shl.b32 %r7, %r7, 21; add.u32 %r12, %r10, %r7;",
            f"mul.wide.u32 %rd8, %r2, {512 * n}; mul.wide.u32 %rd9, %r1, {4 * n};",
            "add.u64 %rd8, %rd8, %rd9; add.u64 %rd2, %rd2, %rd8; add.u64 %rd3, %rd3, %rd8;",
        ]
        if self.before is not None:
            lines += [f"ld.global.u32 {x}, [%rd3+{4 * i}];" for i, x in enumerate(names)]
            lines.append(f"tcgen05.st.sync.aligned.32x32b.x{n}.b32 [%r12], {{{', '.join(names)}}};")
        if self.cells is not None:
            lines.append("mul.wide.u32 %rd13, %r2, 4096; add.u64 %rd4, %rd4, %rd13;")
            lines.append("mul.wide.u32 %rd13, %r1, 32; add.u64 %rd4, %rd4, %rd13;")
            lines += [f"ld.global.u32 %y{i}, [%rd4+{4 * i}];" for i in range(8)]
            eight = ", ".join(f"%y{i}" for i in range(8))
            lines.append("add.u32 %r13, %r12, 256;")
            lines.append(f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r13], {{{eight}}};")
        lines += [
            "tcgen05.wait::st.sync.aligned;",
            "tcgen05.fence::before_thread_sync;  // stored",
            "barrier.cluster.arrive.release.aligned;  // stored",
            "barrier.cluster.wait.acquire.aligned;  // stored",
            "@!%p2 bra WAIT;",
            "tcgen05.fence::after_thread_sync;  // product",
            "and.b32 %r8, %r3, 0xffffff; shr.u32 %r8, %r8, 4; cvt.u64.u32 %rd14, %r8;",
            f"mov.u64 %rd11, {self.a + (A_AT >> 4)}; add.u64 %rd11, %rd11, %rd14;",
            f"mov.u64 %rd12, {self.b + (B_AT >> 4)}; add.u64 %rd12, %rd12, %rd14;",
            f"setp.ne.u32 %p6, {int(self.before is not None)}, 0;",
            f"{product}, {self.word}{masks}, %p6{scale};",
            commit,
            "WAIT: mov.u32 %r14, 0;",
            "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p7, [done], %r14; @!%p7 bra AGAIN;",
            "tcgen05.fence::after_thread_sync;  // read",
            f"tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {{{', '.join(names)}}}, [%r12];",
            "tcgen05.wait::ld.sync.aligned;",
            *(f"st.global.u32 [%rd2+{4 * i}], {x};" for i, x in enumerate(names)),
            "tcgen05.fence::before_thread_sync;  // read",
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
            f"@%p1 tcgen05.dealloc.{group}.sync.aligned.b32 %r10, 512;",
            "ret;",
        ]  # fmt: skip
        if self.without:
            kept = [line for line in lines if self.without not in line]
            assert len(kept) < len(lines), self.without
            lines = kept
        text = kernel(
            "\n".join(lines),
            "image, out, before, cells",
            registers=f".reg .b32 %x<{n}>;\n.reg .b32 %y<8>;",
            head=f".shared .align 1024 .b8 tile[{IMAGE}];\n.shared .align 8 .b64 done;\n"
            ".shared .align 4 .b32 where;",
            target="sm_100a",
        )
        if self.instead[0]:
            assert self.instead[0] in text, self.instead
            text = text.replace(*self.instead)
        return text

    def run(self) -> tuple[np.ndarray, Ran]:
        """D's words, [CTA][lane][column], and what came of the run."""
        out = np.zeros((self.group, 128, self.columns), np.uint32)
        nothing = np.zeros(4, np.uint32)
        arguments = {
            "image": np.concatenate(self.images),
            "out": out,
            "before": nothing if self.before is None else self.before,
            "cells": nothing if self.cells is None else self.cells,
        }
        ran = run(
            self.text(), arguments, block=(128, 1, 1), cluster=(self.group, 1, 1),
            grid=(self.group, 1, 1), **self.settings,
        )  # fmt: skip
        return out, ran


def image(a: np.ndarray, place_a: Place, b: np.ndarray, place_b: Place) -> np.ndarray:
    """A CTA's image of A and B, given as rows of bytes."""
    made = np.zeros(IMAGE, np.uint8)
    for rows, place, base in ((a, place_a, A_AT), (b, place_b, B_AT)):
        for row in range(rows.shape[0]):
            for at in range(rows.shape[1]):
                made[base + place(row, at)] = rows[row, at]
    return made


def word(m: int, n: int, *, c: int = 1, a: int = 0, b: int = 0, major: int = 0) -> int:
    """An instruction descriptor. `major`: bit 0 for A, bit 1 for B."""
    return c << 4 | a << 7 | b << 10 | major << 15 | n >> 3 << 17 | m >> 4 << 24
