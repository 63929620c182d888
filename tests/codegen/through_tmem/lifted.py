"""C = A B^T on Blackwell, with A on its way through tensor memory: threads lift it there."""

from gemm.family import GEMM
from gemm.problem import GemmConfig, Tiles

from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Signature,
    Value,
    bind,
    by,
    copy,
    epilogue,
    prologue,
    record,
    schedule,
    tiles,
)  # fmt: skip
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.family import register
from mlagen.targets.nvidia.dsl import release
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor

register(GEMM)


class Lifted:
    def __init__(self, k, tile, s, roles, rows, cols, lifted, c):
        self.k, self.tile, self.roles = k, tile, roles
        self.rows, self.cols, self.lifted, self.c = rows, cols, lifted, c
        self.acc = s.names("acc")
        self.columns = s.named("kcol", ".b32", 2, "columns of the next tiles of A and B")
        self.maps = s.named("map", ".b64", 2, "tensor maps of a and b")
        self.row, self.col = s.named("origin", ".b32", 2, "first row and column of this block")
        lift, producer, math = roles
        s.signature = Signature(
            pack(
                ("a", TmaMatrix("a", k.dtype, "k", tile.k, tile.m), "read"),
                ("b", TmaMatrix("b", k.dtype, "k", tile.k, tile.n), "read"),
                ("c", f"pointer:{k.output_dtype}", "write"),
                ("m", "u32", "value"), ("n", "u32", "value"), ("k", "u32", "value"),
            ),
            grid=(("m", tile.m), ("n", tile.n)),
            block=(32 * s.roles[-1].warps.stop, 1, 1),
        )  # fmt: skip
        s.plain = lifted and PipelineOrder(
            before=(*by(producer.name, "setup"), *by(math.name, "setup"), *by(lift.name, "setup")),
            tiles=(*by(producer.name, "copy rows", "copy cols"),
                   *by(lift.name, "load", "release rows", "lift"),
                   *by(math.name, "mma", "release cols", "release lifted")),
            after=by(lift.name, "store"),
        )  # fmt: skip
        for pipeline, map, column, first in (
            (rows, self.maps[0], self.columns[0], self.row),
            (cols, self.maps[1], self.columns[1], self.col),
            *([(lifted, "", "", "")] if lifted else ()),
        ):
            bind(pipeline, self._mover(pipeline, map, column, first))

    def _mover(self, pipeline, map, column, first):
        def made(kind, tile):
            boxes = [(part, map, column, first) for part in pipeline.tiles]
            context = {"pipeline": pipeline, "role": self.roles[1], "steps": [(column, 64)],
                       "boxes": boxes}  # fmt: skip
            return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, lambda at: context,
                             access=Access(kind, RingTile(pipeline.name, tile)))  # fmt: skip

        return made

    def step(self, name, tile=None, uses=(), defines=(), folder="lifted", at=None, **more):
        at = at or (self.lifted and self.lifted.columns[0])
        context = {
            "a": self.rows.tiles[0], "b": self.cols.tiles[0], "l": at,
            "c": self.c, "acc": self.acc, "chunk": len(self.acc), "maps": self.maps,
            "column_of_k": self.columns[0], "columns": self.columns, "row": self.row,
            "col": self.col, "b_row": self.col, "pair": False, "m_tile": self.tile.m,
            "n_tile": self.tile.n, "k_tile": self.tile.k, "k_shift": 6,
            "bytes": self.k.output_bytes, "first_warp": 0, "b_rows": self.tile.n,
            "k_major": hex(matrix_descriptor(leading=16, stride=1024)),
            "product": Product(self.tile.m, self.tile.n),
        }  # fmt: skip
        record(Operation(
            name, f"{folder}/{name}.ptx.j2", tile, lambda at: {**context, "first": at.first},
            uses=tuple(Value(x.name, tile) for x in uses),
            defines=tuple(Value(x.name, tile) for x in defines), **more,
        ))  # fmt: skip


@schedule(problem=GemmConfig, target="sm_100a", templates="templates")
def lifted_gemm(k, s):
    tile = Tiles(m=128, n=128, k=64)
    lift = s.role("lift", warpgroups=1)
    producer = s.role("producer", warps=1, single=True)
    math = s.role("math", warps=1, single=True)
    A = s.smem.tile("A", "a", rows=128, row_bytes=128, slots=2)
    B = s.smem.tile("B", "b", rows=128, row_bytes=128, slots=2)
    rows = s.smem.pipeline("rows", A, producer="producer", consumer="lift", releases=4)
    cols = s.smem.pipeline("cols", B, producer="producer", consumer="math", releases=1)
    C = s.region("C", tile.n, producer="math", consumer="lift")
    L = s.columns("L", 32, slots=2)
    lifted = s.smem.pipeline(
        "lifted", L, producer="lift", consumer="math", releases=1, producer_threads=lift.threads
    )
    s.named("acc", ".b32", 32, "A on its way to TMEM, C on its way to memory")
    g = Lifted(k, tile, s, (lift, producer, math), rows, cols, lifted, C)

    with prologue(producer):
        g.step("setup")
    for i in tiles(producer):
        copy(rows, i)
        copy(cols, i)

    with prologue(math):
        g.step("setup")
    for i in tiles(math):
        g.step("mma", i, (cols, lifted), (C,), asynchronous=True, first_differs=True)
        release(cols, i)
        release(lifted, i)

    with prologue(lift):
        g.step("setup")
    for i in tiles(lift):
        g.step("load", i, (rows,))
        release(rows, i)
        g.step("lift", i, (), (lifted,))
    with epilogue(lift):
        g.step("store", None, (C,), folder="gemm")
