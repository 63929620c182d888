"""A problem as small as one can be: the sum of two vectors, and its operations on gfx950."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlagen.dsl import Operation, PlainOrder, Signature, record
from mlagen.dsl.signature import pack
from mlagen.family import Family, ProblemKind, Trial, register
from mlagen.problem.expected import Expected
from mlagen.problem.fields import from_fields

THREADS, WIDTH = 256, 4  # of the one workgroup; elements of a thread and tile
TILE = THREADS * WIDTH


@dataclass(frozen=True)
class Vectors:
    family: ClassVar[str] = "vectors"

    @classmethod
    def from_fields(cls, fields):
        return from_fields(cls, fields)

    @classmethod
    def example(cls):
        return cls()


class Adder:
    """`load` and `store` each go through the tiles on their own."""

    def __init__(self, s, *, slots):
        self.entry = s.entry("nothing")
        vector, scalar = s.registers.block, s.registers.scalar
        self.x = vector("X", WIDTH, "part of x", slots=slots, align=4)
        self.y = vector("Y", WIDTH, "part of y", slots=slots, align=4)
        self.offset = vector("OFF", 1, "byte of a tile that this thread begins at", align=1).regs()
        self.pointers = scalar("PTR", 6, "arguments x, y, z", align=4)
        self.size = scalar("SIZE", 1, "argument n")
        self.buffers = {n: scalar(f"SRD{n}", 4, f"buffer of {n}", align=4) for n in "XYZ"}
        self.loads = scalar("LOAD", 1, "byte of the tile that is loaded next")
        self.stores = scalar("STORE", 1, "byte of the tile that is stored next")
        self.scratch = scalar("TMP", 1, "scalar temporary")
        pointers = [(name, "pointer", "write" if name == "z" else "read") for name in "xyz"]
        s.signature = Signature(
            pack(*pointers, ("n", "u32", "value")), grid=(("one", 1),), block=(THREADS, 1, 1)
        )
        s.plain = PlainOrder(before=("setup",), tile=("load", "store"), after=())

    def setup(self):
        return self.operation("setup", None)

    def load(self, tile):
        return self.operation("load", tile, defines=(self.x.at(tile), self.y.at(tile)))

    def store(self, tile):
        return self.operation("store", tile, uses=(self.x.at(tile), self.y.at(tile)))

    def operation(self, name, tile, **more):
        return record(Operation(name, f"vectors/{name}.s.j2", tile, self.operands, **more))

    def operands(self, at):
        own = {"x": self.x.regs(at.phase), "y": self.y.regs(at.phase)}
        return {**vars(self), **own, "width": WIDTH, "tile_bytes": 4 * TILE}


@dataclass(frozen=True, eq=False)
class VectorInputs:
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class VectorTrial(Trial):
    inputs: VectorInputs

    @property
    def sizes(self):
        return {"tiles": len(self.inputs.x) // TILE}

    def oracles(self):
        """In fp64, and rounded once."""
        x, y = (v.astype(np.float64) for v in (self.inputs.x, self.inputs.y))
        row, head = np.arange(1), np.arange(1)
        exact, once = (x + y)[None, None, None], (self.inputs.x + self.inputs.y)[None, None, None]
        return (
            Expected("exact", exact, 2.0**-24 * np.abs(exact), row, head),
            Expected("rounding", once.astype(np.float64), np.zeros(once.shape), row, head),
        )

    def run(self, artifact, launcher):
        z = np.full(len(self.inputs.x), np.nan, np.float32)
        tensors = {"x": self.inputs.x, "y": self.inputs.y, "z": z}
        report = launcher.launch(artifact, tensors=tensors, scalars={"n": len(z)}, sizes={"one": 1})
        return z[None, None, None], report

    def place(self, worst):
        return f"element {worst.depth}"


class VectorKind(ProblemKind):
    """`tiles` of them."""

    sizes = ("tiles",)

    def inputs(self, problem, *, data, seed, tiles=4):
        rng = np.random.default_rng([seed, tiles])
        x, y = rng.standard_normal((2, TILE * tiles)).astype(np.float32)
        return VectorInputs(x, y)

    def trial(self, inputs):
        return VectorTrial(inputs)


class VectorFamily(Family):
    name = "vectors"

    def kind(self, problem_type):
        return VectorKind()


register(VectorFamily())
