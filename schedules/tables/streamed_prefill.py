"""Streamed prefill on gfx950, the table of MLA and of MHA in fp8: eight waves, 32 query rows each.

One fp32 score tile a wave, collapsed in place to P; K and V pass through small bands of registers.
Within a wave the products and the softmax of a tile follow each other; waves 4..7 lag waves 0..3 by
half a tile, so that on every SIMD one wave's products run under the other's softmax. Each
half has a stream of its own: the lower fetches K, the upper V.

| cluster | matrix  | vector / transcendental   | memory                                          |
|---------|---------|---------------------------|-------------------------------------------------|
| A       | PV(i-1) |                           | rest of V(i-1); first fragments of K(i)         |
|         | QK(i)   |                           | rest of K(i); DMA: K ahead, or V ahead          |
| B       |         | mask(i), maximum, c S - M,| first fragments of V(i); pages of the next DMA, |
|         |         | rescale O, exp2, sum, P(i)| where paged; DMA: V, where it has two slots     |

Two barriers a tile: between both products, and inside the softmax, no wave waits for another. With
two slots V's DMA follows the last read of V(i-1), A, in B; with more it is a tile later, in A. All
waits are derived, unless `dma_wait` places B's by hand, earlier than needed.
"""

from mlagen.attention.prefill.gfx950.attention import SoftmaxForm
from mlagen.attention.prefill.gfx950.streamed import StreamedAttention, begin
from mlagen.attention.prefill.gfx950.streamed_reads import (
    key_reads,
    key_slots,
    value_layout,
    value_layouts,
    value_reads,
    value_slots,
)
from mlagen.attention.prefill.gfx950.tile_knobs import with_tile_knobs
from mlagen.attention.prefill.problem import PrefillProblem
from mlagen.dsl import copy, each_item, epilogue, prologue, schedule, tiles
from mlagen.targets.gfx950.dsl import Subtiled, Wait, Xor, cluster, interleave, only, read, roles


@schedule(problem=PrefillProblem, target="gfx950")
def streamed_prefill(k, s, kv_blocks, form_of):
    """`kv_blocks`: keys that a tile may have. `form_of(k, s)`: what the family says of its problem
    and tiles, a `StreamedForm`."""
    k = with_tile_knobs(k, s, kv_blocks)
    k_slots = s.choice("k_slots", *key_slots(k), comment="K tiles in LDS: how far DMA is ahead")
    v_slots = s.choice("v_slots", *value_slots(k), comment="V tiles in LDS")
    swizzle = s.choice("k_swizzle", "8-9 into 4-5", "9-8 into 4-5", "none", comment="K in LDS")
    v_layout = s.choice("v_layout", *value_layouts(k), comment="V in LDS")
    band = s.choice("band", 4, 3, 2, comment="fragments of K, and of V, in registers")
    early = s.choice("early_exp", 16, 0, 24, 32, 48, comment="exp2 ahead of the row sum, 64ths")
    rescale = s.choice("rescale", "lazy", "eager", comment="O follows a maximum that moved, or all")
    sums = s.choice("row_sums", "packed", "single", comment="additions of P")
    all_dma = s.choice("dma_wait", "latest", "early", comment="cluster B waits for all DMA, or not")
    spread = ("even", "8x2:2") if k.dtype == "bf16" else ("8x2:2", "even")
    qk_pattern = s.choice("qk_pattern", *spread, "12x1:1", comment="DMA under QK")
    pv_pattern = s.choice("pv_pattern", "20x1:0 4x1:2", "even", "24x1:0", comment="K under PV")
    priority = s.choice("priority", 1, 0, 2, 3, comment="s_setprio of cluster A")
    form = form_of(k, s)
    softmax = SoftmaxForm(early * k.kv_block // 128, rescale == "eager", sums == "packed")

    # Tiles: keys of K and V; K's areas, nope and rope; registers of a fragment of either.
    held = form.operands
    keys, row, fragment = k.kv_block, held.depth * k.element_bytes, held.form.registers

    # LDS. K in sub-blocks of 32 keys x 64 bytes: address bits 8, 9 are a row's group of four, which
    # the swizzle spreads over all banks.
    K = s.lds.ring("K", slots=k_slots, waves=4, reads=key_reads(k, held), layout=[
        Subtiled(keys, area.columns * k.element_bytes, 32, 64, Xor.of(swizzle))
        for area in held.keys
    ])  # fmt: skip
    V = s.lds.ring("V", slots=v_slots, waves=4, reads=value_reads(k, held),
                   layout=value_layout(v_layout, keys, row))  # fmt: skip

    # Vector registers, 256 a lane: 4 temporaries, these tiles, 14 or more of row state and
    # addresses.
    entry = begin(s, form)
    s.registers.tile("S", keys // 2, "scores S^T = K Q^T, then P at its start")
    s.registers.tile("O", held.depth // 2, "output accumulator O^T, 32 depths x 32 queries a block")
    s.registers.tile("Q", held.qk_steps * fragment, "queries")
    what = f"{band} fragments on their way to their products"
    s.registers.tile("KB", band * fragment, f"K: {what}")
    s.registers.tile("VB", band * fragment, f"V: {what}")

    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)
    lower, upper = waves["lower"], waves["upper"]
    attention = StreamedAttention(k, s, entry, K, V, form, softmax, fetch={"lower": K, "upper": V})
    dma_wait = Wait(vm=0) if all_dma == "early" else None  # by hand, or derived
    two = v_slots == 2  # V's DMA is B's then, otherwise A's
    v_ahead = v_slots - (1 if two else 2)

    with prologue():
        attention.setup()
    with each_item() if form.facts.persistent else prologue():
        attention.begin()
        attention.load_queries()

    for i in tiles(waves):
        with cluster("A", priority=priority):
            interleave(attention.pv(i - 1), read(K, i), pattern=pv_pattern)
            attention.prescale(i)
            with only(lower):
                interleave(attention.qk(i), copy(K, i + k_slots - 1), pattern=qk_pattern)
            with only(upper):
                interleave(attention.qk(i), copy(V, i + v_ahead, when=not two), pattern=qk_pattern)
        with cluster("B", wait=dma_wait):
            with only(upper):
                copy(V, i + v_ahead, when=two)
            read(V, i)
            attention.mask(i)
            attention.partial_softmax(i)
            with only(lower):
                attention.find_pages(K, i + k_slots)
            with only(upper):
                attention.find_pages(V, i + v_ahead + 1)
            attention.rescale(i)
            attention.tail_softmax(i)

    with epilogue():
        attention.no_tiles()
        attention.normalise()
        attention.store()
