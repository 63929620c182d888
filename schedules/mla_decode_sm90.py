"""MLA decode on Hopper, absorbed form 576 / 512, bf16: 64 heads of one sequence a block.

Three warpgroups. The producer fetches pages by TMA, two ahead. Two math warpgroups issue the two
products of neighbouring tiles back to back: while S = Q K(i+1) still runs, O += P(i) V(i) is done,
so page i is released and page i + 2 is on its way under the rest of the tile.

| role     | tile i                                                                        |
|----------|-------------------------------------------------------------------------------|
| producer | cache page i -> SMEM                                                          |
| math     | O += P(i) V(i); S = Q K(i+1); release page i; softmax(i+1);                   |
|          | O *= alpha, P(i+1) -> SMEM                                                    |

Which barrier phase each step waits for, and how many matrix groups may be in flight, is derived.
"""

from mlagen.dsl import copy, epilogue, prologue, release, schedule, tiles
from mlagen.kernels.mla_decode import MlaDecode
from mlagen.problem import MlaDecodeConfig


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def mla_decode_sm90(k, s):
    producer = s.role("producer", warpgroups=1, registers=40, single=True)
    math = s.role("math", warpgroups=2, registers=232)
    decode = MlaDecode(k, s, producer, math, slots=2)

    with prologue(producer):
        decode.place(producer)
        decode.load_queries()
    for i in tiles(producer):
        copy(decode.cache, i)

    with prologue(math):
        decode.place(math)
        decode.clear()
    for i in tiles(math):
        decode.pv(i)
        decode.clean(i + 1)
        decode.qk(i + 1)
        release(decode.cache, i)
        decode.softmax(i + 1)
        decode.hand_over(i + 1)
    with epilogue(math):
        decode.finish()
