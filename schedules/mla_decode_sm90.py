"""MLA decode on Hopper in the absorbed form 576 / 512. A block has 64 query rows of one sequence
(heads, or heads of several new tokens) and all of its keys or one split of them.

There are two math warpgroups and no producer; a pass has two tiles of 64 keys. The left warpgroup
computes the scores of even tiles and output columns 0..255, the right one those of odd tiles and
columns 256..511. They share one running maximum, exchange their P through SMEM, and the one that
used a tile's columns last fetches the next tile into them.

| left, tiles i and i + 1                        | right, tiles i + 1 and i                        |
|------------------------------------------------|-------------------------------------------------|
| softmax(i), M -> right; O *= alpha             |                                                 |
| O += P(i) V(i), P from registers               | M from left; softmax(i+1), M -> left; O *= alpha|
| M from right; P(i) -> right                    | P(i+1) -> left; O += P(i+1) V(i+1), registers   |
| O *= alpha; O += P(i+1) V(i+1), P from right   | O += P(i) V(i), P from left                     |
| fetch columns 0..255 of i+2, i+3               | fetch columns 256..575 of i+3, i+2              |
| S(i+2) = Q K(i+2)                              | S(i+3) = Q K(i+3)                               |

The left one's second product comes after both of the right one's, whose tiles are then fetched
earlier. An e4m3 cache is fetched the same way into half of the SMEM of its tiles. The feeder, one
or two more warpgroups, converts it to bf16 in place, in the order in which slots become free; for
rope-aware rows it also loads the scales.

With `persistent` a block takes one such item after another. What is looked up or fetched for a tile
past an item's last one belongs to the next item, whose Q is loaded when both warpgroups have their
last scores; `each_item`, passes and epilogue run once an item.

Barrier phases, named barriers, proxy fences and the number of matrix groups in flight are derived,
and it is proved that no tile is overwritten too early.
"""

from mlagen.dsl import each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import MlaDecode


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def mla_decode_sm90(k, s):
    converted = k.cache_dtype != "bf16"
    persistent = s.choice("persistent", *((0,) if converted or k.dtype != "bf16" else (0, 1)),
                          comment="blocks take one work item after another (all bf16)")  # fmt: skip
    # A thread looks up several small pages a tile: more items or tokens leave it no registers.
    few = converted or (k.page_size < 64 and (persistent or k.q_len > 1))
    boxes = s.choice("boxes", *((2,) if converted else (2, 1, 4)),
                     comment="tiles of 64 columns that share a barrier")  # fmt: skip
    held = s.choice("held", *((1,) if few else (2, 1)),
                    comment="tiles of 64 columns of Q in registers")  # fmt: skip
    refill = s.choice("left_refill", *(("early", "late") if converted else ("late", "early")),
                      comment="before the left one stores its P, or after it")  # fmt: skip
    boxed = k.page_size > 1  # what follows belongs to copies by box
    ahead = s.choice("ahead", *((0, 1) if boxed else (0,)),
                     comment="passes ahead that tiles are prefetched to L2")  # fmt: skip
    evict = s.choice("evict", *(("normal", "first") if boxed else ("normal",)),
                     comment="how soon L2 evicts the cache's rows")  # fmt: skip
    # Registers a thread: they add up to 504 for three warpgroups, or 512 for four.
    split, feeders = (256, 256, 0), 0
    if converted:
        gathered = k.page_size == 1 and not k.rope_aware
        scales = k.rope_aware and k.dtype != "bf16"
        roomy = refill == "early" and k.page_size % 64 == 0 and not scales
        feeders = s.choice("feeders", *((2, 1) if roomy else (1,)),
                           comment="warpgroups that convert e4m3 to bf16")  # fmt: skip
        split = (232, 224, 48) if gathered else (232, 232, 40)
        split = (224, 224, 32) if feeders == 2 else split
    left = s.role("left", warpgroups=1, registers=split[0])
    right = s.role("right", warpgroups=1, registers=split[1])
    feeder = s.role("feeder", warpgroups=feeders, registers=split[2]) if converted else None
    d = MlaDecode(k, s, left, right, feeder, boxes=boxes, held=held, evict=evict,
                  persistent=bool(persistent))  # fmt: skip

    with prologue(left):
        d.setup(left)
    with each_item(left):
        d.begin(left)
        d.clear()
    for i in tiles(left, step=2):
        d.next_item(i + 2, left)
        d.row_maximum(i)
        d.running_maximum(i, d.max_left, fresh=True)
        d.exponent(i)
        d.next_keys(i + 2, left)
        d.zero_tail(i, left)
        d.rescale(i)
        d.pv(i, d.left)
        d.next_tiles(i + 2, left)
        if refill == "early":
            d.refill(d.left, i + 2)
        d.take_right_maximum(i + 1)
        d.store_p(i, d.p_left)
        d.load_queries(i + 2, left)
        if refill == "late":
            d.refill(d.left, i + 2)
        d.rescale(i + 1)
        d.pv(i + 1, d.left, d.p_right)
        d.load_held(i + 2, left)
        d.hold_queries(i + 2)
        d.qk(i + 2, d.left, first=True)
        d.refill(d.left, i + 3)
        d.qk(i + 2, d.right, first=False)
        if ahead:
            d.prefetch(d.left, i + 2)
            d.prefetch(d.left, i + 3)
    with epilogue(left):
        d.store_sum(d.sum_left)
        d.finish(d.sum_right, left)
        d.sync_sums(left)

    with prologue(right):
        d.setup(right)
    with each_item(right):
        d.begin(right)
        d.clear()
    for i in tiles(right, step=2):
        d.next_item(i + 2, right)
        d.row_maximum(i + 1)
        d.take_left_maximum(i)
        d.running_maximum(i + 1, d.max_right, fresh=False)
        d.exponent(i + 1)
        d.next_keys(i + 2, right)
        d.zero_tail(i + 1, right)
        d.store_p(i + 1, d.p_right)
        d.rescale(i)
        d.pv(i + 1, d.right)
        d.pv(i, d.right, d.p_left)
        d.late_arrive(i + 1, d.p_right)
        d.next_tiles(i + 2, right)
        d.refill(d.right, i + 3)
        d.refill(d.right, i + 2)
        d.hold_queries(i + 3)
        d.qk(i + 3, d.right, first=True)
        d.qk(i + 3, d.left, first=False)
        if ahead:
            d.prefetch(d.right, i + 3)
            d.prefetch(d.right, i + 2)
    with epilogue(right):
        d.store_sum(d.sum_right)
        d.finish(d.sum_left, right)
        d.sync_sums(right)

    if feeder:
        with prologue(feeder):
            d.setup(feeder)
        for i in tiles(feeder, step=2):
            d.convert(d.left, i)
            d.load_scales(i)
            d.convert(d.right, i + 1)
            d.load_scales(i + 1)
            d.convert(d.right, i)
            d.convert(d.left, i + 1)
