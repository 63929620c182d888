"""Row sums on gfx950: what the schedule arranges, and the memory and registers it works on."""

from mlagen.dsl import Access, Operation, PlainOrder, Signature, Value, bind, record
from mlagen.dsl.signature import pack
from mlagen.targets.gfx950.dsl import Reads, Subtiled, Xor

ROWS, COLUMNS, WAVES = 256, 16, 4  # a tile; each of its rows belongs to one thread


class Rows:
    def __init__(self, k, s, *, slots):
        self.k = k
        self.entry = s.entry("block of rows")
        self.ring = s.lds.ring(
            "X",
            layout=Subtiled(ROWS, 4 * COLUMNS, ROWS, 4 * COLUMNS, Xor((8, 9), (4, 5))),
            slots=slots,
            waves=WAVES,
            reads=Reads(
                [lambda thread, c=c: (thread, 16 * c) for c in range(COLUMNS // 4)],
                width=16,
                readers=64 * WAVES,
                comment="rows x columns, read by ds_read_b128",
            ),
        )
        vector, scalar = s.registers.block, s.registers.scalar
        self.x = vector("X", COLUMNS, "one row of a tile", align=4).regs()
        self.sum = vector("SUM", 1, "sum of this thread's row", align=1).regs()
        self.source = vector("SRC", 1, "byte offset this lane fetches", align=1).regs()
        self.out = vector("OUT", 1, "byte offset of this thread's sum", align=1).regs()
        self.addresses = vector("ADR", len(self.ring.plan.bases), "LDS addresses", align=1).regs()
        self.pointers = scalar("PTR", 4, "arguments x, out", align=4)
        self.sizes = scalar("SIZE", 2, "arguments m, k", align=2)
        self.buffer = {n: scalar(f"SRD{n}", 4, f"buffer of {n}", align=4) for n in ("X", "OUT")}
        self.offset = scalar("XOFF", 1, "byte of a row that is fetched next")
        self.pass_bytes = scalar("PASSB", 1, "bytes of the rows of one DMA pass")
        self.lds_wave = scalar("LDSW", 1, "wave * 1024, its part of a DMA pass")
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
        s.plain = PlainOrder(before=("setup",), tile=("copy X", "read X", "add"), after=("store",))
        bind(self.ring, self.move)

    def setup(self):
        self.operation("setup", None)

    def add(self, tile):
        self.operation("add", tile, uses=(Value("X", tile),))

    def store(self):
        self.operation("store", None)

    def operation(self, name, tile, **more):
        record(Operation(name, f"sums/{name}.s.j2", tile, self.operands, **more))

    def move(self, kind, tile):
        """What `copy(X, tile)` and `read(X, tile)` are rendered from."""
        defines = (self.ring.register_value(tile),) if kind == "read" else ()
        access = Access(kind, self.ring.at(tile))
        return Operation(
            kind, f"sums/{kind}.s.j2", tile, self.operands, defines=defines, access=access
        )

    def operands(self, at):
        """What templates see: this object's names, and the tile's slot in LDS."""
        slot = self.ring.slot_base(at.phase)
        return {**vars(self), "slot": slot, "rows": ROWS, "columns": COLUMNS}
