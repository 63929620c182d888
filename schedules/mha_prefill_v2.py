"""Long-context MHA / GQA prefill on gfx950: eight waves, 32 query rows each.

fp8 has the table of `tables/streamed_prefill.py`: K and V streamed through small bands of registers
beside one score tile. This file's is that of bf16, 64 keys a tile.

Two tiles are in work at any time: while the matrix pipe computes S(i) = K(i) Q^T, the vector pipe
finishes the softmax of tile i - 1; while it computes O += V(i-1)^T P(i-1), the vector pipe starts
the softmax of tile i. Waves 4..7 lag waves 0..3 by one cluster, so one half's matrix cluster
meets the other half's memory cluster.

| cluster | matrix  | vector / transcendental          | memory                              |
|---------|---------|----------------------------------|-------------------------------------|
| A       | QK(i)   | tail of softmax(i-1), cast P     | page of K(i+3), where paged         |
| B       |         | mask(i), skipped where all seen  | DMA K(i+3); LDS V(i-1) -> registers |
| C       | PV(i-1) | start of softmax(i), rescale     | page of V(i+2), where paged         |
| D       |         |                                  | DMA V(i+2); LDS K(i+1) -> registers |

One slot of K and one of V are neither read nor fetched into. So a slot is fetched into a tile after
its last read, and reads need not end with their cluster: each product waits for its own operand.

The waits, the prologue and the drain are derived from these four rows; `mlagen inspect` shows them.
"""

from mlagen.attention.prefill.gfx950.tile_knobs import with_tile_knobs
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mha_prefill.gfx950.form import streamed_form
from mlagen.families.mha_prefill.gfx950.moves import key_reads, value_reads
from mlagen.families.mha_prefill.gfx950.operations import Attention, begin
from mlagen.families.mha_prefill.problem import KV_BLOCKS, MhaProblem
from mlagen.schedules.tables.streamed_prefill import streamed_prefill
from mlagen.targets.gfx950.dsl import Subtiled, Xor, cluster, interleave, read, roles


@schedule(problem=MhaProblem, target="gfx950")
def mha_prefill_v2(k, s):
    if k.dtype == "fp8_e4m3":
        streamed_prefill(k, s, KV_BLOCKS[k.dtype], lambda k, s: streamed_form(k))
        return

    k = with_tile_knobs(k, s, KV_BLOCKS[k.dtype])
    swizzle = s.choice("k_swizzle", "8-9 into 4-5", "9-8 into 4-5", comment="K bank swizzle")
    k_slots = s.choice("k_slots", 4, 2, 3, comment="K tiles in LDS: how far its DMA runs ahead")
    v_slots = s.choice("v_slots", 4, 2, 3, 8, comment="V tiles in LDS")
    spare = s.choice("spare_slots", 1, 0, comment="of K, and of V: reads may end under products")
    share = s.choice("kv_registers", "shared", "apart", comment="K and V operand bank") == "shared"
    softmax = s.choice("softmax", "mixed", "grouped", comment="exp2 among the rest, or in a row")
    qk_pattern = s.choice("qk_pattern", "even", "6x1:3 10x1:5", "16x1:4", comment="cluster A")
    pv_pattern = s.choice("pv_pattern", "16x1:4", "4x1:5 6x1:5 6x1:3", "even", comment="cluster C")
    pv_priority = s.choice("pv_priority", 1, 0, 2, 3, comment="s_setprio of cluster C")

    # Tiles: keys of K and V, bytes of their rows; 32 query rows a wave.
    keys, row = k.kv_block, 2 * k.depth

    # LDS. Sub-blocks of 32 keys x 64 bytes: address bits 8, 9 are a row's group of four, which the
    # swizzle spreads over all banks. V's, of 8 keys, need none for transposing reads.
    K = s.lds.ring("K", slots=k_slots, waves=k.num_warps, reads=key_reads(k),
                   layout=Subtiled(keys, row, 32, 64, Xor.of(swizzle)))  # fmt: skip
    V = s.lds.ring("V", slots=v_slots, waves=k.num_warps, reads=value_reads(k),
                   layout=Subtiled(keys, row, 8, 64))  # fmt: skip

    # Vector registers, 256 a lane: 4 temporaries, these tiles, 11 or more of row state and
    # addresses. K is alive from its read to QK, V from its read to PV.
    entry = begin(k, s)
    s.registers.share("KV", K.whole_tile, V.whole_tile, apart=not share)
    s.registers.tile("S", keys // 2, "scores S^T = K Q^T, then P in its first half", slots=2)
    s.registers.tile("Q", k.depth // 4, "queries, prescaled by c")
    s.registers.tile("O", k.depth // 2, "output accumulator O^T, 32 depths x 32 queries a block")

    attention = Attention(k, s, entry, K, V, mixed=softmax == "mixed")
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)

    with prologue():
        attention.setup()
        attention.load_queries()

    for i in tiles(waves):
        with cluster("A"):
            attention.find_pages(K, i + k_slots - spare)
            interleave(attention.qk(i), attention.tail_softmax(i - 1), pattern=qk_pattern)
        with cluster("B"):
            copy(K, i + k_slots - spare)
            read(V, i - 1)
            attention.mask(i)
        with cluster("C", priority=pv_priority):
            attention.find_pages(V, i + v_slots - 1 - spare)
            interleave(attention.pv(i - 1), attention.partial_softmax(i), pattern=pv_pattern)
            attention.rescale(i)
        with cluster("D"):
            copy(V, i + v_slots - 1 - spare)
            read(K, i + 1)
            attention.prescale(i + 1)

    with epilogue():
        attention.no_tiles()
        attention.normalise()
        attention.store()
