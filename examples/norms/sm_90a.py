"""RMSNorm on Hopper: what the schedule arranges. A warp has a row; its lanes share the columns."""

import struct

from mlagen.dsl import Operation, PipelineOrder, Signature, by, record
from mlagen.dsl.signature import pack
from norms.problem import EPS, MAX_COLUMNS

PARTS = MAX_COLUMNS // (32 * 8)  # a lane has 8 columns of each part of a row: 16 bytes


class NormOfWarps:
    def __init__(self, s, warps, *, rows):
        self.rows, self.parts = rows, PARTS
        self.eps = "0f" + struct.pack(">f", EPS).hex()  # as PTX writes an fp32
        self.first_thread = warps.first_thread
        named = {
            "row": (".b32", "next row of this warp"),
            "column": (".b32", "first column of this lane"),
            "columns": (".b32", "columns of a row"),
            "at": (".b64", "byte of the lane's columns in the next row"),
            "root": (".f32", "1 / root of the mean"),
        }
        for name, (kind, what) in named.items():
            setattr(self, name, s.named(name, kind, 1, what)[0])
        self.x = s.named("x", ".b32", 4 * PARTS, "columns of a row, two in each")
        s.signature = Signature(
            pack(
                ("x", "pointer:bf16", "read"), ("w", "pointer:bf16", "read"),
                ("out", "pointer:bf16", "write"), ("m", "u32", "value"), ("n", "u32", "value"),
            ),
            grid=(("m", rows * len(warps.warps)),),
            block=(32 * warps.warps.stop, 1, 1),
        )  # fmt: skip
        mine = warps.name
        s.plain = PipelineOrder(before=by(mine, "setup"), tiles=by(mine, "load", "scale"), after=())

    def setup(self):
        return self.operation("setup", None)

    def load(self, tile):
        return self.operation("load", tile)

    def scale(self, tile):
        return self.operation("scale", tile)

    def operation(self, name, tile):
        return record(Operation(name, f"norms/{name}.ptx.j2", tile, lambda at: vars(self)))
