"""Row sums on Hopper: what the schedule arranges."""

from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Signature,
    Value,
    bind,
    by,
    record,
)
from mlagen.dsl.signature import TmaMatrix, pack

ROWS, COLUMNS = 128, 32  # a tile: TMA brings rows of 128 bytes


class Rows:
    def __init__(self, k, s, producer, adders, *, stages):
        self.k = k
        self.tile = s.smem.tile("X", "x", rows=ROWS, row_bytes=4 * COLUMNS, slots=stages)
        self.feed = s.smem.pipeline(
            "feed",
            self.tile,
            producer=producer.name,
            consumer=adders.name,
            releases=len(adders.warps),
        )
        self.first_thread = adders.first_thread
        self.sum = s.named("sum", ".f32", 1, "sum of this thread's row")[0]
        self.row = s.named("row", ".b32", 1, "first row of this block")[0]
        self.column = s.named("column", ".b32", 1, "column of the tile that is fetched next")[0]
        self.map = s.named("map", ".b64", 1, "tensor map of x")[0]
        s.signature = Signature(
            pack(
                ("x", TmaMatrix("x", "fp32", "k", COLUMNS, ROWS), "read"),
                ("out", "pointer:fp32", "write"),
                ("m", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("m", ROWS),),
            block=(32 * adders.warps.stop, 1, 1),
        )
        fetch, add = producer.name, adders.name
        s.plain = PipelineOrder(
            before=(*by(fetch, "setup"), *by(add, "setup")),
            tiles=(*by(fetch, "copy feed"), *by(add, "add", "release feed")),
            after=by(add, "store"),
        )
        bind(self.feed, self.move)

    def setup(self):
        self.operation("setup", None)

    def add(self, tile):
        self.operation("add", tile, uses=(Value("feed", tile),))

    def store(self):
        self.operation("store", None)

    def operation(self, name, tile, **more):
        record(Operation(name, f"sums/{name}.ptx.j2", tile, self.operands, **more))

    def move(self, kind, tile):
        """`copy(feed, tile)` and `release(feed, tile)`: mlagen has templates for them."""
        access = Access(kind, RingTile("feed", tile))
        return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, self.operands, access=access)

    def operands(self, at):
        """What templates see. mlagen adds `slot`, `smem` and `tiles`."""
        return {
            **vars(self),
            "pipeline": self.feed,
            "boxes": [(self.tile, self.map, self.column, self.row)],
            "steps": [(self.column, COLUMNS)],
            "rows": ROWS,
            "columns": COLUMNS,
        }
