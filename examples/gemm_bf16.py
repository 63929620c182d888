"""C = A . B^T in bf16, on gfx950, Hopper and Blackwell: one problem, a schedule each.

Nothing here is attention, and nothing in mlagen knows of this file: `mlagen build
examples/gemm_bf16.py --target gfx950`, `--target sm_90a` or `--target sm_100a`.

On gfx950 eight waves compute a block of 256 x 256. A wave owns 128 x 64 of the block, half of its
rows at a time: while one half of the workgroup multiplies, the other fetches and reads.

| cluster | matrix             | memory                                                  |
|---------|--------------------|---------------------------------------------------------|
| read 0  |                    | LDS B(i), A0(i) -> registers; DMA A1 of a later tile    |
| mma 0   | C0 += A0(i) B(i)^T |                                                         |
| read 1  |                    | LDS A1(i) -> registers; DMA B and A0 of a later tile    |
| mma 1   | C1 += A1(i) B(i)^T |                                                         |

A slot is filled again one cluster after its last read, so a DMA has four clusters to arrive. The
waits before the barriers, the prologue and the drain are derived from these four rows.

On Hopper there are a producer and two math warpgroups. A tile is released when the product after it
has been issued, so one product is always in flight; the barrier phases and the group waits follow.
No wait is placed by hand there; on gfx950 `cluster(NAME, wait=Wait(vm=8))` places one.

On Blackwell one thread fetches, one issues the products, whose sums lie in tensor memory, and four
warps store them. Two blocks may do so as a CTA pair, with 128 rows of A and half of B's in each.
"""

from gemm.family import GEMM
from gemm.gfx950 import Gemm, reads
from gemm.problem import GemmConfig, Tiles
from gemm.sm_90a import PipelinedGemm, rows_of
from gemm.sm_100a import TensorGemm

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.family import register
from mlagen.targets.gfx950.dsl import Subtiled, Xor, cluster, interleave, read, roles
from mlagen.targets.nvidia.dsl import release

register(GEMM)


@schedule(problem=GemmConfig, target="gfx950", templates="templates")
def gemm_bf16(k, s):
    tile = Tiles(
        m=s.choice("m_tile", 256, 128, comment="rows of C that a workgroup computes"),
        n=s.choice("n_tile", 256, 128, comment="columns of C that it computes"),
        k=s.choice("k_tile", 64, comment="columns of A and of B a tile"),
    )
    slots = s.choice("slots", 2, 3, comment="tiles in LDS: how far the DMA runs ahead")
    swizzle = s.choice("swizzle", "8-10 into 4-6", "10-8 into 4-6", "none", comment="LDS banks")
    order = s.choice("mma_order", "keep A", "keep B", comment="operand that MFMAs reuse in a row")
    pattern = s.choice("dma_pattern", "even", "4x1:3", "2x2:4", comment="DMA among LDS reads")
    priority = s.choice("mma_priority", 1, 0, 2, 3, comment="s_setprio of the mma clusters")

    # LDS: rows of 128 bytes. Address bits 8..10 are the row's bits 1..3: XORed into the 16-byte
    # column they spread the 16 lanes of a ds_read_b128 phase over all banks.
    half, row = tile.m // 2, 2 * tile.k

    def ring(name, rows):
        layout = Subtiled(rows, row, 16, row, Xor.of(swizzle))
        return s.lds.ring(
            name, slots=slots, waves=8, layout=layout, reads=reads(tile, rows, name[0])
        )

    A0, A1, B = ring("A0", half), ring("A1", half), ring("B", tile.n)

    # Vector registers, 256 a lane: 4 temporaries, these tiles, 9 of addresses. A half of A is alive
    # from its read to its product.
    entry = s.entry("block of n", "block of m")
    s.registers.share("A", A0.whole_tile, A1.whole_tile)
    s.registers.tile(*B.whole_tile)
    s.registers.tile("C", tile.m * tile.n // 512, "accumulators, 32 columns x 32 rows")

    gemm = Gemm(k, tile, s, entry, A0, A1, B)
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)

    with prologue():
        gemm.setup()

    for i in tiles(waves):
        with cluster("read 0"):
            read(B, i)
            interleave(read(A0, i), copy(A1, i + slots - 1), pattern=pattern)
        with cluster("mma 0", priority=priority):
            gemm.mma(i, 0, order=order)
        with cluster("read 1"):
            interleave(read(A1, i), copy(A0, i + slots), pattern=pattern)
            copy(B, i + slots)
        with cluster("mma 1", priority=priority):
            gemm.mma(i, 1, order=order)

    with epilogue():
        gemm.store()


@schedule(problem=GemmConfig, target="sm_90a", templates="templates")
def gemm_bf16_sm90(k, s):
    tile = Tiles(
        m=s.choice("m_tile", 128, comment="rows of C that a block computes: 64 a warpgroup"),
        n=s.choice("n_tile", 256, 128, comment="columns of C that it computes"),
        k=s.choice("k_tile", 64, comment="columns of A and of B a tile"),
    )
    stages = s.choice("stages", 4, 3, 2, comment="tiles in SMEM")
    fetch = s.choice("feed", "TMA", "cp.async", comment="what fetches A and B")
    producer = s.role("producer", warpgroups=1, registers=40, single=fetch == "TMA")
    math = s.role("math", warpgroups=2, registers=232)

    # SMEM: rows of 128 bytes in the 128-byte swizzle. Each math warp releases a slot.
    A = s.smem.tile("A", "a", rows=rows_of(tile, math), row_bytes=2 * tile.k, slots=stages)
    B = s.smem.tile("B", "b", rows=tile.n, row_bytes=2 * tile.k, slots=stages)
    feed = s.smem.pipeline(
        "feed", A, B, producer=producer.name, consumer=math.name, releases=len(math.warps),
        producer_threads=0 if producer.single else producer.threads,
    )  # fmt: skip
    s.named("acc", ".f32", tile.n // 2, "C: 64 rows x n_tile a warpgroup")
    gemm = PipelinedGemm(k, tile, s, producer, math, feed)

    with prologue(producer):
        gemm.setup()
    for i in tiles(producer):
        copy(feed, i)

    with prologue(math):
        gemm.setup()
    for i in tiles(math):
        gemm.mma(i)
        release(feed, i - 1)
    with epilogue(math):
        gemm.store()


@schedule(problem=GemmConfig, target="sm_100a", templates="templates")
def gemm_bf16_sm100(k, s):
    tile = Tiles(
        m=s.choice("m_tile", 128, comment="rows of C that a block computes: a lane of TMEM each"),
        n=s.choice("n_tile", 256, 128, comment="columns of C that it computes"),
        k=s.choice("k_tile", 64, comment="columns of A and of B a tile"),
    )
    stages = s.choice("stages", 4, 3, 2, comment="tiles in SMEM")
    ctas = s.choice("ctas", 1, 2, comment="2: a CTA pair multiplies together, half of B in each")
    s.cta_cluster(ctas, pair=ctas == 2)
    out = s.role("out", warpgroups=1)
    producer = s.role("producer", warps=1, single=True)
    math = s.role("math", warps=1, single=True, leader=ctas == 2)

    # SMEM: rows of 128 bytes in the 128-byte swizzle. TMEM: a lane is a row of C.
    A = s.smem.tile("A", "a", rows=tile.m, row_bytes=2 * tile.k, slots=stages)
    B = s.smem.tile("B", "b", rows=tile.n // ctas, row_bytes=2 * tile.k, slots=stages)
    feed = s.smem.pipeline("feed", A, B, producer=producer.name, consumer=math.name, releases=1)
    C = s.region("C", tile.n, producer=math.name, consumer=out.name)
    s.named("acc", ".b32", 32, "columns of C on their way to memory")
    gemm = TensorGemm(k, tile, s, producer, math, out, feed, C, ctas)

    with prologue(producer):
        gemm.setup()
    for i in tiles(producer):
        copy(feed, i)

    with prologue(math):
        gemm.setup()
    for i in tiles(math):
        gemm.mma(i)
        release(feed, i)

    with prologue(out):
        gemm.setup()
    with epilogue(out):
        gemm.store()
