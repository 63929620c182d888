"""Two roles with code of their own: the lower waves fetch X and give X + Y, the upper ones fetch Y
and give X - Y, row sums both. A fault is one change to the schedule."""

from dataclasses import dataclass

from mlagen.dsl import (
    Access,
    Operation,
    Signature,
    Value,
    bind,
    copy,
    epilogue,
    prologue,
    record,
    schedule,
    tiles,
)
from mlagen.dsl.signature import pack
from mlagen.targets.gfx950.dsl import (
    Reads,
    Subtiled,
    Wait,
    Xor,
    cluster,
    interleave,
    only,
    read,
    roles,
)

ROWS, COLUMNS, WAVES = 256, 8, 4  # a tile; a row belongs to one thread of each role
FRAGMENTS = [lambda thread, c=c: (thread, 16 * c) for c in range(COLUMNS // 4)]  # a row a thread
LAYOUT = Subtiled(ROWS, 4 * COLUMNS, ROWS, 4 * COLUMNS, Xor((7,), (4,)))
FAULTS = ("none", "early copy", "late copy", "no copy", "barrier", "weak wait", "leave")


@dataclass(frozen=True)
class Sums:
    @classmethod
    def example(cls):
        return cls()


class Rows:
    def __init__(self, s, slots):
        self.entry = s.entry("block of rows")
        vector, scalar = s.registers.block, s.registers.scalar
        self.rings, self.tile = {}, {}
        for name in "XY":
            self.rings[name] = s.lds.ring(
                name,
                layout=LAYOUT,
                slots=slots,
                waves=WAVES,
                reads=Reads(FRAGMENTS, 16, readers=64 * WAVES),
            )
            self.tile[name] = vector(name, COLUMNS, f"one row of {name}", align=4).regs()
            bind(self.rings[name], lambda kind, tile, name=name: self.move(name, kind, tile))
        bases = len(self.rings["X"].plan.bases)
        self.sum = vector("SUM", 1, "sum of this thread's row", align=1).regs()
        self.source = vector("SRC", 1, "byte offset this lane fetches", align=1).regs()
        self.out = vector("OUT", 1, "byte offset of this thread's sum", align=1).regs()
        self.addresses = vector("ADR", bases, "LDS addresses", align=1).regs()
        self.pointers = scalar("PTR", 8, "arguments x, y, plus, minus", align=4)
        self.sizes = scalar("SIZE", 2, "arguments m, k", align=2)
        self.fetched = scalar("SRDIN", 4, "buffer of what this role fetches", align=4)
        self.stored = scalar("SRDOUT", 4, "buffer of what this role stores", align=4)
        self.offset = scalar("OFF", 1, "byte of a row that is fetched next")
        self.pass_bytes = scalar("PASSB", 1, "bytes of the rows of one DMA pass")
        self.lds_wave = scalar("LDSW", 1, "its part of a DMA pass")
        self.scratch = scalar("TMP", 4, "scalar temporaries")
        pointers = [(name, "pointer", "read") for name in "xy"]
        pointers += [(name, "pointer", "write") for name in ("plus", "minus")]
        s.signature = Signature(
            pack(*pointers, ("m", "u32", "value"), ("k", "u32", "value")),
            grid=(("m", ROWS),),
            block=(128 * WAVES, 1, 1),
        )

    def move(self, name, kind, tile):
        ring = self.rings[name]
        more = {"x": self.tile[name], "ring": ring}
        return Operation(
            kind,
            f"two_roles/{kind}.s.j2",
            tile,
            lambda at: self.operands(at) | more | {"slot": ring.slot_base(at.phase)},
            defines=(ring.register_value(tile),) if kind == "read" else (),
            access=Access(kind, ring.at(tile)),
        )

    def operation(self, name, tile=None, **more):
        return record(Operation(name, f"two_roles/{name}.s.j2", tile, self.operands, **more))

    def add(self, tile):
        uses = (Value("X", tile), Value("Y", tile))
        return self.operation("add", tile, uses=uses)

    def operands(self, at):
        own = "XY"[at.role == "upper"]
        return {**vars(self), "role": at.role, "ring": self.rings[own], "rows": ROWS,
                "columns": COLUMNS, "waves": WAVES}  # fmt: skip


@schedule(problem=Sums, target="gfx950", templates="templates")
def two_roles(k, s):
    fault = s.choice("fault", *FAULTS)
    rows = Rows(s, slots=3)
    X, Y = rows.rings["X"], rows.rings["Y"]
    waves = roles(lower=range(WAVES), upper=range(WAVES, 2 * WAVES), stagger=1)
    lower, upper = waves["lower"], waves["upper"]

    with prologue():
        rows.operation("setup")
        if fault == "leave":
            with only(lower):
                rows.operation("leave", leaves=True)
    for i in tiles(waves):
        with cluster("read", wait=Wait(vm=4, lgkm=0) if fault == "weak wait" else None):
            if fault != "early copy":
                with only(lower):
                    copy(X, i + 2)
            if fault not in ("late copy", "no copy"):
                with only(upper):
                    copy(Y, i + 2)
            read(X, i)
            read(Y, i)
        with cluster("add"):
            with only(lower):
                rows.add(i)
                if fault == "early copy":
                    copy(X, i + 3)
            with only(upper):
                interleave(rows.add(i), rows.operation("nothing", i), pattern="4x2:1")
                if fault == "late copy":
                    copy(Y, i + 1)
                if fault == "barrier":
                    rows.operation("barrier", i)
    with epilogue():
        rows.operation("store")
