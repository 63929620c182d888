"""C = A B^T on Blackwell, with A copied to tensor memory by tcgen05.cp: an operand a tile."""

from gemm.problem import GemmConfig, Tiles
from lifted import Lifted

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.targets.nvidia.dsl import release


@schedule(problem=GemmConfig, target="sm_100a", templates="templates")
def copied_gemm(k, s):
    tile = Tiles(m=128, n=128, k=64)
    out = s.role("out", warpgroups=1)
    producer = s.role("producer", warps=1, single=True)
    math = s.role("math", warps=1, single=True)
    A = s.smem.tile("A", "a", rows=128, row_bytes=128, slots=2)
    B = s.smem.tile("B", "b", rows=128, row_bytes=128, slots=2)
    rows = s.smem.pipeline("rows", A, producer="producer", consumer="math", releases=1)
    cols = s.smem.pipeline("cols", B, producer="producer", consumer="math", releases=1)
    C = s.region("C", tile.n, producer="math", consumer="out")
    L = [s.region(f"L{n}", 32, producer="math", consumer="math") for n in range(2)]
    s.named("acc", ".b32", 32, "C on its way to memory")
    g = Lifted(k, tile, s, (out, producer, math), rows, cols, None, C)

    with prologue(producer):
        g.step("setup")
    for i in tiles(producer):
        copy(rows, i)
        copy(cols, i)

    with prologue(math):
        g.step("setup")
    for i in tiles(math, step=2):
        for n in range(2):
            g.step("copy", i + n, (rows,), (L[n],), at=L[n], asynchronous=True)
            g.step("mma", i + n, (cols, L[n]), (C,), at=L[n], asynchronous=True, first_differs=True)
            release(rows, i + n)
            release(cols, i + n)

    with prologue(out):
        g.step("setup")
    with epilogue(out):
        g.step("store", None, (C,), folder="gemm")
