"""RMSNorm on gfx950: what the schedule arranges, and the registers and LDS that it works on."""

from mlagen.dsl import Operation, PlainOrder, Signature, Value, record
from mlagen.dsl.extents import exactly, touched
from mlagen.dsl.signature import pack
from norms.problem import EPS, MAX_COLUMNS

WAVES = 4
LANE_COLUMNS = MAX_COLUMNS // (64 * WAVES)  # of a row; 8 of bf16 are what a lane fetches at once


class Norm:
    def __init__(self, s, *, ahead, rows):
        words = LANE_COLUMNS // 2
        self.rows, self.eps = rows, EPS
        self.entry = s.entry("group of rows")
        self.sums = touched(
            s.lds.exchange("SUMS", 4 * WAVES, comment="squares of each wave"), exactly("size", 16)
        )
        self.x = s.registers.tile("X", words, "columns of a row", slots=ahead + 1)
        vector, scalar = s.registers.block, s.registers.scalar
        self.w = vector("W", words, "this lane's columns of w").regs()
        self.f = vector("F", LANE_COLUMNS, "columns of a row in fp32").regs()
        self.sum = vector("SUM", 1, "sum of squares", align=1).regs()
        self.waves = vector("WAVES", WAVES, "sums of squares of all waves").regs()
        self.root = vector("ROOT", 1, "1 / root of the mean", align=1).regs()
        self.inverse = vector("INV", 1, "1 / n", align=1).regs()
        self.lane = vector("LANE", 1, "byte of the lane's columns in a row", align=1).regs()
        self.place = vector("ADR", 2, "LDS addresses: of this wave's sum, of all sums").regs()
        self.y = vector("Y", words, "columns of out").regs()
        self.pointers = scalar("PTR", 6, "arguments x, w, out", align=4)
        self.sizes = scalar("SIZE", 2, "arguments m, n; n becomes bytes of a row", align=2)
        self.buffer = {n: scalar(f"ROW{n}", 4, f"next row of {n}", align=4) for n in ("X", "OUT")}
        self.weights = scalar("ROWW", 4, "buffer of w", align=4)
        self.scratch = scalar("TMP", 2, "scalar temporaries", align=2)
        s.signature = Signature(
            pack(
                ("x", "pointer", "read"), ("w", "pointer", "read"), ("out", "pointer", "write"),
                ("m", "u32", "value"), ("n", "u32", "value"),
            ),
            grid=(("m", rows),),
            block=(64 * WAVES, 1, 1),
        )  # fmt: skip
        s.plain = PlainOrder(before=("setup",), tile=("load", "square", "total", "scale"), after=())

    def setup(self):
        return self.operation("setup", None)

    def load(self, tile):
        return self.operation("load", tile, defines=(Value("X", tile),))

    def square(self, tile):
        """Puts the sum of this wave's squares into the exchange."""
        defines = (Value("F", tile), Value("SUMS", tile))
        return self.operation("square", tile, uses=(Value("X", tile),), defines=defines)

    def total(self, tile):
        """Takes the sums of all waves out of the exchange."""
        return self.operation(
            "total", tile, uses=(Value("SUMS", tile),), defines=(Value("ROOT", tile),)
        )

    def scale(self, tile):
        return self.operation("scale", tile, uses=(Value("F", tile), Value("ROOT", tile)))

    def operation(self, name, tile, **more):
        return record(Operation(name, f"norms/{name}.s.j2", tile, self.operands, **more))

    def operands(self, at):
        return {**vars(self), "x": self.x.regs(at.phase), "slot": self.sums.slot_base(at.phase)}
