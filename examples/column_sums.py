"""out[n] = sum over m of x[m, n] in fp32. A lane owns four columns; a tile is a row."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlagen.dsl import (
    Operation,
    PlainOrder,
    Signature,
    Value,
    epilogue,
    prologue,
    record,
    schedule,
    tiles,
)
from mlagen.dsl.signature import pack
from mlagen.family import register
from mlagen.family.arrays import ArrayFamily
from mlagen.problem.expected import Expected
from mlagen.targets.gfx950.dsl import cluster, roles


@dataclass(frozen=True)
class ColumnSums:
    family: ClassVar[str] = "columns"


def exact(arrays):
    x = arrays["x"].astype(np.float64)
    bound = len(x) * 2.0**-24 * np.abs(x).sum(axis=0)  # m additions, each rounds once
    return Expected.of("exact", values=x.sum(axis=0), bounds=bound, output="out")


register(
    ArrayFamily(
        "columns",
        sizes={"m": 77, "n": 300},
        calls=[{"m": m} for m in range(1, 10)],
        inputs={"x": ("fp32", "m", "n")},
        outputs={"out": ("fp32", "n")},
        oracles=[exact],
    )
)


@schedule(problem=ColumnSums, target="gfx950", templates="templates")
def column_sums(k, s):
    ahead = s.choice("ahead", 2, 1, 3, comment="rows that are on their way while one is added")
    arguments = (
        ("x", "pointer", "read"),
        ("out", "pointer", "write"),
        ("m", "u32", "value"),
        ("n", "u32", "value"),
    )
    s.signature = Signature(pack(*arguments), grid=(("n", 256),), block=(64, 1, 1))
    s.plain = PlainOrder(before=("setup",), tile=("load", "add"), after=("store",))
    entry = s.entry("block of 256 columns")
    X = s.registers.tile("X", 4, "four columns of a row", slots=ahead + 1)
    names = {
        "total": s.registers.tile("SUM", 4, "sums of the four columns").regs(),
        "lane": s.registers.block("LANE", 1, "byte of the lane's columns in a row", align=1).regs(),
        "pointers": s.registers.scalar("PTR", 4, "arguments x, out", align=4),
        "sizes": s.registers.scalar("SIZE", 2, "arguments m, n", align=2),
        "row": s.registers.scalar("ROW", 4, "buffer resource of the next row of x", align=4),
        "out": s.registers.scalar("OUT", 4, "buffer resource of out", align=4),
    }

    def operands(at):
        return {**names, "entry": entry, "x": X.regs(at.phase)}

    def operation(name, tile=None, **values):
        record(Operation(name, f"columns/{name}.s.j2", tile, operands, **values))

    with prologue():
        operation("setup")
    for i in tiles(roles(all=range(1))):
        with cluster("row"):
            operation("load", i + ahead, defines=(Value("X", i + ahead),))
            operation("add", i, uses=(Value("X", i),))
    with epilogue():
        operation("store")
