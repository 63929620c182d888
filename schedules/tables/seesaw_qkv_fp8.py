"""MLA decode on Hopper with products of e4m3: a block has 64 query rows of one sequence, and its
keys or a split of them. Two math warpgroups take turns at tiles of 64 keys; a third one fetches
them.

| left, tiles i and i + 1                          | right, tiles i + 1 and i                    |
|--------------------------------------------------|---------------------------------------------|
| O *= alpha; O += P(i) V(i)                       | M from left; softmax(i+1); P(i+1) -> left   |
| S(i+2) = Q K(i+2)                                | O *= alpha; O += P(i) V(i), P from left     |
| M from right; O *= alpha; O += P(i+1) V(i+1)     | O *= alpha; O += P(i+1) V(i+1)              |
| softmax(i+2), M -> right; P(i+2) -> right        | S(i+3) = Q K(i+3)                           |

So the left one's softmax is beside its own product and those of the right one, and the right one's
beside the left one's products.
"""

from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.e4m3 import E4m3Decode
from mlagen.targets.nvidia.dsl import release


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def seesaw_qkv_fp8(k, s):
    left = s.role("left", warpgroups=1, registers=232)
    right = s.role("right", warpgroups=1, registers=240)
    feeder = s.role("feeder", warpgroups=1, registers=32, single=True)

    # SMEM: tiles of 64 rows x 128 columns, the last ones half full. P: 64 rows x 64 bytes.
    s.smem.tile_row("Q", -(-k.d_qk // 128), "q", rows=64)
    s.smem.tile_row("K", -(-k.d_qk // 128), "cache", rows=64, slots=4)
    for role in (left, right):
        s.smem.tile(f"P {role.name}", "p", rows=32, row_bytes=128, slots=1)

    s.named("o", ".f32", k.d_v // 4, "O^T: half of d_v x 64 query rows")
    s.named("s", ".f32", 32, "S, then P: 64 query rows x a tile")
    s.named("p", ".b32", 8, "P as e4m3")
    s.named("v", ".b32", 32, "V^T as operand A: half of d_v x a tile")
    d = E4m3Decode(k, s, left, right, feeder)

    with prologue(feeder):
        d.setup(feeder)
    for i in tiles(feeder, step=2):
        d.load_queries(i)
        copy(d.keys, i)
        d.next_page(i)
        copy(d.keys, i + 1)
        d.next_page(i + 1)

    with prologue(left):
        d.setup(left)
        d.clear()
    for i in tiles(left, step=2):
        d.rescale(i, d.left, left)
        d.load_values(i, left)
        d.await_keys(i + 2)
        d.pv(i, d.left, left)
        release(d.keys, i)
        d.qk(i + 2)
        d.take_maximum(i + 1, d.right)
        d.rescale(i + 1, d.right, left)
        d.load_values(i + 1, left)
        d.pv(i + 1, d.right, left)
        release(d.keys, i + 1)
        d.row_maximum(i + 2)
        d.running_maximum(i + 2, d.left)
        d.exponent(i + 2)
        d.wait_read(i, d.left)
        d.store_p(i + 2, d.left)
        d.is_read(i + 1, d.right)
    with epilogue(left):
        d.store_sum(d.left)
        d.finish(d.left)

    with prologue(right):
        d.setup(right)
        d.clear()
    for i in tiles(right, step=2):
        d.rescale(i, d.left, right)
        d.load_values(i, right)
        d.pv(i, d.left, right)
        release(d.keys, i)
        d.rescale(i + 1, d.right, right)
        d.load_values(i + 1, right)
        d.is_read(i, d.left)
        d.pv(i + 1, d.right, right)
        release(d.keys, i + 1)
        d.qk(i + 3)
        d.row_maximum(i + 3)
        d.take_maximum(i + 2, d.left)
        d.running_maximum(i + 3, d.right)
        d.exponent(i + 3)
        d.wait_read(i + 1, d.right)
        d.store_p(i + 3, d.right)
    with epilogue(right):
        d.store_sum(d.right)
        d.finish(d.right)
