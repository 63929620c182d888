"""A persistent kernel: a workgroup sums the rows of one block after another, each over a number of
tiles of its own."""

from two_roles import Sums

from mlagen.dsl import (
    Access,
    Operation,
    Signature,
    Tile,
    Value,
    bind,
    copy,
    each_item,
    epilogue,
    prologue,
    record,
    schedule,
    tiles,
)
from mlagen.dsl.signature import pack
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor, cluster, only, read, roles

ROWS, COLUMNS, WAVES = 512, 8, 8  # a block of rows, a thread each; columns of a tile
FRAGMENTS = [lambda thread, c=c: (thread, 16 * c) for c in range(COLUMNS // 4)]  # a row a thread


class Blocks:
    def __init__(self, s, slots):
        self.entry = s.entry("workgroup", items=True)
        vector, scalar = s.registers.block, s.registers.scalar
        self.ring = s.lds.ring(
            "X",
            layout=Subtiled(ROWS, 4 * COLUMNS, ROWS, 4 * COLUMNS, Xor((7,), (4,))),
            slots=slots,
            waves=WAVES,
            reads=Reads(FRAGMENTS, 16, readers=64 * WAVES),
        )
        self.x = vector("X", COLUMNS, "one row of a tile", align=4).regs()
        self.sum = vector("SUM", 1, "sum of this thread's row", align=1).regs()
        self.bias = vector("BIAS", 1, "what this thread's row gets, where it has a tile").regs()
        self.source = vector("SRC", 1, "byte offset this lane fetches", align=1).regs()
        self.out = vector("OUT", 1, "byte offset of this thread's sum", align=1).regs()
        bases = len(self.ring.plan.bases)
        self.addresses = vector("ADR", bases, "LDS addresses", align=1).regs()
        self.pointers = scalar("PTR", 8, "arguments x, counts, out, bias", align=4)
        self.sizes = scalar("SIZE", 3, "arguments m, k, items of a workgroup", align=2)
        self.fetched = scalar("SRDX", 4, "buffer of x", align=4)
        self.biases = scalar("SRDBIAS", 4, "buffer of bias", align=4)
        self.stored = scalar("SRDOUT", 4, "buffer of out", align=4)
        self.block = scalar("BLOCK", 1, "first block of rows of this workgroup")
        self.offset = scalar("OFF", 1, "byte of a row that is fetched next")
        self.pass_bytes = scalar("PASSB", 1, "bytes of the rows of one DMA pass")
        self.lds_wave = scalar("LDSW", 1, "its part of a DMA pass")
        self.scratch = scalar("TMP", 5, "scalar temporaries")
        pointers = [("x", "pointer", "read"), ("counts", "pointer", "read")]
        pointers += [("out", "pointer", "write"), ("bias", "pointer", "read")]
        sizes = [(name, "u32", "value") for name in ("m", "k", "items")]
        s.signature = Signature(
            pack(*pointers, *sizes), grid=(("groups", 1),), block=(64 * WAVES, 1, 1)
        )
        bind(self.ring, self.move)

    def move(self, kind, tile):
        return Operation(
            kind,
            f"two_roles/{kind}.s.j2",
            tile,
            lambda at: self.operands(at) | {"slot": self.ring.slot_base(at.phase)},
            defines=(self.ring.register_value(tile),) if kind == "read" else (),
            access=Access(kind, self.ring.at(tile)),
        )

    def operation(self, name, tile=None, **more):
        folder = "two_roles" if name in ("leave", "store") else "work_items"
        return record(Operation(name, f"{folder}/{name}.s.j2", tile, self.operands, **more))

    def operands(self, at):
        return {**vars(self), "rows": ROWS, "columns": COLUMNS}


@schedule(problem=Sums, target="gfx950", templates="templates")
def work_items(k, s):
    streams = s.choice("streams", "shared", "apart")
    fault = s.choice("fault", "none", "copy ahead of items", "unused reads", "late exit")
    blocks = Blocks(s, slots=4)
    X = blocks.ring
    waves = roles(lower=range(4), upper=range(4, 8), stagger=2)

    with prologue():
        blocks.operation("setup")
        if fault == "copy ahead of items":
            copy(X, Tile(0))
    with each_item():
        blocks.operation("item")
        if fault == "late exit":
            blocks.operation("leave", leaves=True)
        if streams == "apart":
            with only(waves["upper"]):
                blocks.operation("pause")
    for i in tiles(waves):
        with cluster("read"):
            copy(X, i + 2)
            read(X, i)
        with cluster("add"):
            blocks.operation("bias", i, domain="first")
            if fault != "unused reads":
                blocks.operation("add", i, uses=(Value("X", i),))
    with epilogue():
        blocks.operation("store")
