"""MLA prefill on gfx950 in the expanded form, 192 / 128: eight waves, 32 query rows each.

One fp32 score tile a wave, collapsed in place to P; K and V pass through small bands of registers.
Within a wave the products and the softmax of a tile follow each other; waves 4..7 run half a tile
behind waves 0..3, so that on every SIMD one wave's products run under the other's softmax.

| cluster | matrix | vector / transcendental             | memory                                |
|---------|--------|-------------------------------------|---------------------------------------|
| A       | QK(i)  |                                     | DMA K(i+1), V(i+2); rest of K(i)      |
| B       |        | mask(i), maximum, c S - M           | first fragments of V(i)               |
| C       |        | rescale O, exp2, row sum, pack P(i) |                                       |
| D       | PV(i)  |                                     | rest of V(i); first fragments of K(i+1) |
"""

from mlagen.dsl import cluster, copy, epilogue, prologue, read, roles, schedule, tiles, weave
from mlagen.kernels.mla_prefill import StreamedAttention, key_ring, value_layouts, value_ring
from mlagen.problem import MlaConfig


@schedule(problem=MlaConfig, target="gfx950")
def mla_prefill_v2(k, s):
    k_slots = s.choice("k_slots", 2, 3, comment="K tiles in LDS: how far its DMA runs ahead")
    v_slots = s.choice("v_slots", 3, 2, 4, comment="V tiles in LDS")
    v_layout = s.choice("v_layout", *value_layouts(k), comment="V in LDS")
    band = s.choice("band", 4, 3, 2, comment="fragments of K, and of V, in registers")
    early = s.choice("early_exp", 0, 16, 32, comment="exp2 in cluster B, of 64 a lane")

    K = key_ring(s, k, slots=k_slots, waves=8, swizzle="8-9 into 4-5")
    V = value_ring(s, k, slots=v_slots, waves=8, layout=v_layout)
    attention = StreamedAttention(k, s, K, V, band=band, early=early, eager=False, fetchers={})
    waves = roles(lower=range(4), upper=range(4, 8), stagger=2)

    with prologue():
        attention.setup()
        attention.load_queries()

    for i in tiles(waves):
        with cluster("A", priority=1):
            weave(attention.qk(i), copy(K, i + k_slots - 1), pattern="even")
            copy(V, i + v_slots - 2)
        with cluster("B"):
            read(V, i)
            attention.mask(i)
            attention.partial_softmax(i)
        with cluster("C"):
            attention.rescale(i)
            attention.tail_softmax(i)
        with cluster("D", priority=1):
            attention.pv(i)
            read(K, i + 1)
            attention.prescale(i + 1)

    with epilogue():
        attention.no_tiles()
        attention.normalise()
        attention.store()
