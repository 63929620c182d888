"""Folding rows: the problem, its oracles, and its operations on gfx950 and on Hopper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    PlainOrder,
    RingTile,
    Signature,
    Value,
    bind,
    by,
    record,
)
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.errors import ScheduleError
from mlagen.family import Family, ProblemKind, Trial, register
from mlagen.problem.expected import Expected
from mlagen.problem.fields import from_fields
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor

KEEP = 0.75
ROWS, COLUMNS, WAVES = 512, 8, 8  # gfx950: a tile; a row belongs to one thread of the eight waves
BOX_ROWS, BOX_COLUMNS = 128, 32  # Hopper: TMA brings rows of 128 bytes
FRAGMENTS = [lambda thread, c=c: (thread, 16 * c) for c in range(COLUMNS // 4)]  # a row a thread


@dataclass(frozen=True)
class Folding:
    family: ClassVar[str] = "folding"

    @classmethod
    def from_fields(cls, fields):
        return from_fields(cls, fields)

    @classmethod
    def example(cls):
        return cls()


class Gfx950Rows:
    """The four lower waves fetch for all of them."""

    def __init__(self, s, *, slots):
        self.entry = s.entry("block of rows")
        vector, scalar = s.registers.block, s.registers.scalar
        self.ring = s.lds.ring(
            "X",
            layout=Subtiled(ROWS, 4 * COLUMNS, ROWS, 4 * COLUMNS, Xor((7,), (4,))),
            slots=slots,
            waves=WAVES // 2,
            reads=Reads(FRAGMENTS, 16, readers=64 * WAVES),
        )
        self.x = vector("X", COLUMNS, "one row of a tile", align=4).regs()
        self.folded = vector("F", 1, "this thread's row, as far as it is folded", align=1).regs()
        self.source = vector("SRC", 1, "byte offset this lane fetches", align=1).regs()
        self.out = vector("OUT", 1, "byte offset of this thread's result", align=1).regs()
        self.addresses = vector("ADR", len(self.ring.plan.bases), "LDS addresses", align=1).regs()
        self.pointers = scalar("PTR", 4, "arguments x, out", align=4)
        self.sizes = scalar("SIZE", 2, "arguments m, k", align=2)
        self.buffer = {n: scalar(f"SRD{n}", 4, f"buffer of {n}", align=4) for n in ("X", "OUT")}
        self.offset = scalar("XOFF", 1, "byte of a row that is fetched next")
        self.pass_bytes = scalar("PASSB", 1, "bytes of the rows of one DMA pass")
        self.lds_wave = scalar("LDSW", 1, "its part of a DMA pass")
        self.scratch = scalar("TMP", 4, "scalar temporaries")
        s.signature = Signature(
            pack(
                ("x", "pointer", "read"),
                ("out", "pointer", "write"),
                ("m", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("m", ROWS),),
            block=(64 * WAVES, 1, 1),
        )
        s.plain = PlainOrder(
            before=("setup", "begin"),
            tile=("copy X", "read X", "fold"),
            after=("store",),
            share={"copy X": ("lower", range(WAVES // 2))},
        )
        bind(self.ring, self.move)

    def setup(self):
        return self.operation("setup")

    def begin(self):
        return self.operation("begin")

    def fold(self, tile):
        return self.operation("fold", tile, uses=(Value("X", tile),))

    def store(self):
        return self.operation("store")

    def operation(self, name, tile=None, **more):
        return record(Operation(name, f"rows/{name}.s.j2", tile, self.operands, **more))

    def move(self, kind, tile):
        defines = (self.ring.register_value(tile),) if kind == "read" else ()
        access = Access(kind, self.ring.at(tile))
        return Operation(
            kind, f"rows/{kind}.s.j2", tile, self.operands, defines=defines, access=access
        )

    def operands(self, at):
        slot = self.ring.slot_base(at.phase)
        return {**vars(self), "slot": slot, "rows": ROWS, "columns": COLUMNS, "waves": WAVES}


class HopperRows:
    """One thread fetches, 128 threads fold a row each."""

    def __init__(self, s, producer, folders, *, stages):
        if folders.threads != BOX_ROWS:
            raise ScheduleError(
                f"role {folders.name!r} has {folders.threads} threads",
                hint=f"it has {BOX_ROWS}: a thread folds one row of the tile",
            )
        self.tile = s.smem.tile("X", "x", rows=BOX_ROWS, row_bytes=4 * BOX_COLUMNS, slots=stages)
        self.feed = s.smem.pipeline(
            "feed",
            self.tile,
            producer=producer.name,
            consumer=folders.name,
            releases=len(folders.warps),
        )
        self.first_thread = folders.first_thread
        self.folded = s.named("folded", ".f32", 1, "this thread's row")[0]
        self.row = s.named("row", ".b32", 1, "first row of this block")[0]
        self.column = s.named("column", ".b32", 1, "column of the tile that is fetched next")[0]
        self.map = s.named("map", ".b64", 1, "tensor map of x")[0]
        s.signature = Signature(
            pack(
                ("x", TmaMatrix("x", "fp32", "k", BOX_COLUMNS, BOX_ROWS), "read"),
                ("out", "pointer:fp32", "write"),
                ("m", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("m", BOX_ROWS),),
            block=(32 * folders.warps.stop, 1, 1),
        )
        s.plain = PipelineOrder(
            before=(*by(producer.name, "setup"), *by(folders.name, "setup", "begin")),
            tiles=(*by(producer.name, "copy feed"), *by(folders.name, "fold", "release feed")),
            after=by(folders.name, "store"),
        )
        bind(self.feed, self.move)

    def setup(self):
        return self.operation("setup")

    def begin(self):
        return self.operation("begin")

    def fold(self, tile):
        return self.operation("fold", tile, uses=(Value("feed", tile),))

    def store(self):
        return self.operation("store")

    def operation(self, name, tile=None, **more):
        return record(Operation(name, f"rows/{name}.ptx.j2", tile, self.operands, **more))

    def move(self, kind, tile):
        access = Access(kind, RingTile("feed", tile))
        return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, self.operands, access=access)

    def operands(self, at):
        return {
            **vars(self),
            "pipeline": self.feed,
            "boxes": [(self.tile, self.map, self.column, self.row)],
            "steps": [(self.column, BOX_COLUMNS)],
            "rows": BOX_ROWS,
            "columns": BOX_COLUMNS,
        }


@dataclass(frozen=True, eq=False)
class FoldInputs:
    x: np.ndarray


def oracles_of(inputs):
    """In fp64 with a bound, and as both kernels round: the product, then the sum, in fp32."""
    x = inputs.x
    exact, sizes = np.zeros(len(x)), np.zeros(len(x))
    in_fp32 = np.zeros(len(x), np.float32)
    for column in x.T:
        exact, sizes = KEEP * exact + column, KEEP * sizes + np.abs(column)
        in_fp32 = (in_fp32 * np.float32(KEEP)).astype(np.float32) + column
    rows, heads = np.arange(len(x)), np.arange(1)
    # Each step rounds twice, and what is before it shrinks by KEEP: 2 / (1 - KEEP) roundings.
    bound = 2 / (1 - KEEP) * 2.0**-24 * np.maximum(sizes, np.abs(x).max(axis=1, initial=0))
    shape = (1, len(x), 1, 1)
    return (
        Expected("exact", exact.reshape(shape), 4 * bound.reshape(shape), rows, heads),
        Expected("rounding", in_fp32.astype(float).reshape(shape), np.zeros(shape), rows, heads),
    )


@dataclass(frozen=True)
class FoldTrial(Trial):
    inputs: FoldInputs

    @property
    def sizes(self):
        m, k = self.inputs.x.shape
        return {"m": m, "k": k}

    def oracles(self):
        return oracles_of(self.inputs)

    def run(self, artifact, launcher):
        out = np.full(len(self.inputs.x), np.nan, np.float32)
        report = launcher.launch(
            artifact,
            tensors={"x": self.inputs.x, "out": out},
            scalars=self.sizes,
            sizes=self.sizes,
        )
        return out[None, :, None, None], report

    def place(self, worst):
        return f"row {worst.row}"


class FoldKind(ProblemKind):
    """m rows of k columns."""

    sizes = ("m", "k")

    def inputs(self, problem, *, data, seed, m=300, k=40):
        x = np.random.default_rng([seed, k]).standard_normal((m, k)).astype(np.float32)
        return FoldInputs(x)

    def trial(self, inputs):
        return FoldTrial(inputs)


class FoldFamily(Family):
    name = "folding"

    def kind(self, problem_type):
        return FoldKind()


register(FoldFamily())
