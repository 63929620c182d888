"""A small PTX kernel that the NVIDIA tools and the launcher can be tested with.

o[r, c] = x[r, c] + alpha * y[r, c]: x in bf16 through a tensor map with the 128-byte swizzle, y and
o in fp32 by pointer. A block of 128 threads makes a tile of 64 x 64; edges are cut off.
"""

from __future__ import annotations

from typing import Any

from mlagen.artifact import (
    Arg,
    Artifact,
    GridDim,
    Manifest,
    Proof,
    Resources,
    TensorMapSpec,
    sha256,
)

TILE = 64
TILE_BYTES = TILE * TILE * 2
SMEM_BYTES = TILE_BYTES + 8  # the barrier lies after the tile
TEXT = f"""\
.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry tma_add(
    .param .align 64 .b8 x_map[128],
    .param .u64 y,
    .param .u64 o,
    .param .u32 rows,
    .param .u32 cols,
    .param .f32 alpha
)
.reqntid 128, 1, 1
{{
    .reg .pred %first, %landed, %in_row, %in_col, %in, %again;
    .reg .b32 %t, %tile, %bar, %col0, %row0, %rows, %cols, %e, %r, %c, %at, %key, %x32, %byte;
    .reg .b16 %x16;
    .reg .b64 %map, %y, %o, %state, %index, %a;
    .reg .f32 %alpha, %xv, %yv;

    mov.u32 %t, %tid.x;
    mov.u32 %tile, smem;
    add.u32 %bar, %tile, {TILE_BYTES};
    setp.eq.u32 %first, %t, 0;
    ld.param.u64 %y, [y];
    ld.param.u64 %o, [o];
    ld.param.u32 %rows, [rows];
    ld.param.u32 %cols, [cols];
    ld.param.f32 %alpha, [alpha];
    mov.u32 %col0, %ctaid.x;
    shl.b32 %col0, %col0, 6;
    mov.u32 %row0, %ctaid.y;
    shl.b32 %row0, %row0, 6;
    mov.b64 %map, x_map;
    cvta.param.u64 %map, %map;

    @!%first bra READY;
    mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
READY:
    bar.sync 0;
    @!%first bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], {TILE_BYTES};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%tile], [%map, {{%col0, %row0}}], [%bar];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %landed, [%bar], 0;
    @!%landed bra WAIT;

    mov.u32 %e, %t;
NEXT:
    shr.u32 %r, %e, 6;
    and.b32 %c, %e, 63;
    shl.b32 %byte, %e, 1;
    shl.b32 %key, %r, 4;
    and.b32 %key, %key, 112;
    xor.b32 %byte, %byte, %key;
    add.u32 %at, %tile, %byte;
    ld.shared.b16 %x16, [%at];
    cvt.u32.u16 %x32, %x16;
    shl.b32 %x32, %x32, 16;
    mov.b32 %xv, %x32;
    add.u32 %r, %r, %row0;
    add.u32 %c, %c, %col0;
    setp.lt.u32 %in_row, %r, %rows;
    setp.lt.u32 %in_col, %c, %cols;
    and.pred %in, %in_row, %in_col;
    mul.wide.u32 %index, %r, %cols;
    cvt.u64.u32 %a, %c;
    add.u64 %index, %index, %a;
    shl.b64 %index, %index, 2;
    add.u64 %a, %y, %index;
    @%in ld.global.f32 %yv, [%a];
    fma.rn.f32 %xv, %yv, %alpha, %xv;
    add.u64 %a, %o, %index;
    @%in st.global.f32 [%a], %xv;
    add.u32 %e, %e, 128;
    setp.lt.u32 %again, %e, {TILE * TILE};
    @%again bra NEXT;
    ret;
}}
"""
ARGS = (
    Arg(
        "x_map",
        0,
        128,
        "tensor_map",
        "read",
        tensor_map=TensorMapSpec("x", "bf16", "cols", TILE, TILE, 128),
    ),
    Arg("y", 128, 8, "pointer", "read", dtype="fp32"),
    Arg("o", 136, 8, "pointer", "write", dtype="fp32", align=4),
    Arg("rows", 144, 4, "u32", "value"),
    Arg("cols", 148, 4, "u32", "value"),
    Arg("alpha", 152, 4, "f32", "value"),
)


def make_tma_artifact(cubin: bytes = b"cubin", ptxas: str = "13.0.88", **changes: Any) -> Artifact:
    """The artifact of the kernel with `cubin` as its code; `changes` replace manifest fields."""
    fields: dict[str, Any] = {
        "kernel": "tma_add",
        "symbol": "tma_add",
        "target": "sm_90a",
        "problem_type": "AddConfig",
        "problem": {},
        "schedule_file": "schedules/tma_add.py",
        "knobs": {},
        "args": ARGS,
        "kernarg_bytes": 160,
        "block": (128, 1, 1),
        "grid": (GridDim("cols", TILE), GridDim("rows", TILE)),
        "resources": Resources(32, 0, 0, SMEM_BYTES, 0, 0, 0),
        "proof": Proof("proved"),
        "tools": {"mlagen": "0", "ptxas": ptxas},
        "flags": ("-arch=sm_90a",),
        "text_sha256": sha256(TEXT),
        "code_sha256": sha256(cubin),
    }
    fields.update(changes)
    return Artifact(Manifest(**fields), cubin, TEXT)
