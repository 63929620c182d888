"""MLA prefill on gfx950 in the expanded form, 192 / 128: eight waves, 32 query rows each.

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
two slots V's DMA follows the last read of V(i-1), A, in B; with more it is a tile later, in A. The
waits before the barriers and inside the products, the prologue and the drain are derived.
"""

from mlagen.attention.prefill.gfx950.streamed import (
    StreamedAttention,
    key_ring,
    key_slots,
    value_layouts,
    value_ring,
    value_slots,
)
from mlagen.dsl import (
    Wait,
    cluster,
    copy,
    each_item,
    epilogue,
    interleave,
    only,
    prologue,
    read,
    roles,
    schedule,
    tiles,
)
from mlagen.families.mla_prefill.problem import MlaConfig


@schedule(problem=MlaConfig, target="gfx950")
def mla_prefill_v2(k, s):
    k_slots = s.choice(
        "k_slots", *key_slots(k), comment="K tiles in LDS: how far its DMA runs ahead"
    )
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
    grid = s.choice("grid", "static", "persistent", comment="a workgroup is a tile, or walks items")
    arguments = s.choice("arguments", "mlagen", "aiter", comment="whose: for host code of AITER's")
    priority = s.choice("priority", 1, 0, 2, 3, comment="s_setprio of cluster A")

    K = key_ring(s, k, slots=k_slots, waves=4, swizzle=swizzle)
    V = value_ring(s, k, slots=v_slots, waves=4, layout=v_layout)
    attention = StreamedAttention(
        k, s, K, V, band=band, early=early, eager=rescale == "eager",
        packed_sums=sums == "packed",
        fetch={"lower": K, "upper": V}, persistent=grid == "persistent", aiter=arguments == "aiter",
    )  # fmt: skip
    waves = roles(lower=range(4), upper=range(4, 8), stagger=1)
    lower, upper = waves["lower"], waves["upper"]

    with prologue():
        attention.setup()
    with each_item() if grid == "persistent" else prologue():
        attention.begin()
        attention.load_queries()

    late = v_slots == 2
    v_ahead = v_slots - (1 if late else 2)
    for i in tiles(waves):
        with cluster("A", priority=priority):
            interleave(attention.pv(i - 1), read(K, i), pattern=pv_pattern)
            attention.prescale(i)
            with only(lower):
                interleave(attention.qk(i), copy(K, i + k_slots - 1), pattern=qk_pattern)
            with only(upper):
                if late:
                    attention.qk(i)
                else:
                    interleave(attention.qk(i), copy(V, i + v_ahead), pattern=qk_pattern)
        with cluster("B", wait=Wait(vm=0) if all_dma == "early" else None):
            if late:
                with only(upper):
                    copy(V, i + v_ahead)
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
