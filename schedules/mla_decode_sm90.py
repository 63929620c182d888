"""MLA decode on Hopper, absorbed form 576 / 512, bf16: 64 heads of one sequence a block.

Three warpgroups. The producer fetches pages by TMA, two ahead. Two math warpgroups overlap the
products of neighbouring tiles: while O += P(i) V(i) runs, the scores of tile i + 1 are turned into
probabilities.

| role     | tile i                                                                        |
|----------|-------------------------------------------------------------------------------|
| producer | cache page i -> SMEM                                                          |
| math     | S = Q K(i+1); O += P(i) V(i); softmax(i+1) while PV runs; release page i;     |
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
        decode.clean(i + 1)
        decode.qk(i + 1)
        decode.pv(i)
        decode.softmax(i + 1)
        release(decode.cache, i)
        decode.hand_over(i + 1)
    with epilogue(math):
        decode.finish()
