"""What the tables of this folder arrange: mha_prefill_v2's operations over rings of two slots."""

from mlagen.families.mha_prefill.gfx950.moves import key_reads, value_reads
from mlagen.families.mha_prefill.gfx950.operations import Attention, begin
from mlagen.targets.gfx950.dsl import Subtiled, Xor


def parts(k, s):
    """K, V and the operations."""
    k = k.with_tiles(
        kv_block=s.choice("kv_block", 64),
        num_warps=s.choice("num_warps", 8),
        q_block_size=s.choice("q_block_size", 32),
        rescale_threshold=s.number("rescale_threshold", 8.0, least=0.0, most=20.0),
        fp8_mma_k_128=s.choice("fp8_mma_k_128", False),
    )
    swizzled = Subtiled(k.kv_block, 2 * k.depth, 32, 64, Xor((8, 9), (4, 5)))
    plain = Subtiled(k.kv_block, 2 * k.depth, 8, 64)
    K = s.lds.ring("K", slots=2, waves=8, reads=key_reads(k), layout=swizzled)
    V = s.lds.ring("V", slots=2, waves=8, reads=value_reads(k), layout=plain)
    entry = begin(k, s)
    s.registers.share("KV", K.whole_tile, V.whole_tile)
    s.registers.tile("S", k.kv_block // 2, "scores, then P", slots=2)
    s.registers.tile("Q", k.depth // 4, "queries")
    s.registers.tile("O", k.depth // 2, "output accumulator")
    return K, V, Attention(k, s, entry, K, V)
