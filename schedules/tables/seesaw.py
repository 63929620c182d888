"""MLA on Hopper, seesaw: queries are the rows of products, a block has up to 64 of them, and two
warpgroups share its tiles and its output.

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

Barrier phases, named barriers, proxy fences and the number of matrix groups in flight are derived;
no wait is placed by hand, and `mlagen inspect` shows all of them. That no tile is overwritten too
early is proved.
"""

from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.dsl import each_item, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import mla_decode
from mlagen.schedules.tables.seesaw_halves import halves


def choose(k, s):
    """The knobs. An e4m3 cache, single rows and small pages leave some of them one choice."""
    converted, boxed = k.cache_dtype != "bf16", k.page_size > 1
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
    ahead = s.choice("ahead", *((0, 1) if boxed else (0,)),
                     comment="passes ahead that tiles are prefetched to L2")  # fmt: skip
    evict = s.choice("evict", *(("normal", "first") if boxed else ("normal",)),
                     comment="how soon L2 evicts the cache's rows")  # fmt: skip
    feeders = 0
    if converted:
        # Four warpgroups start with 128 registers a thread, in which ptxas would spill these.
        tight = k.rope_aware and (k.dtype != "bf16" or (k.window > 0 and k.q_len > 1))
        roomy = refill == "early" and k.page_size % 64 == 0 and not tight
        feeders = s.choice("feeders", *((2, 1) if roomy else (1,)),
                           comment="warpgroups that convert e4m3 to bf16")  # fmt: skip
    return SeesawKnobs(boxes, held, refill, ahead, evict, bool(persistent), feeders)


def split(k, feeders):
    """Registers a thread of left, right and feeder, of 512 in all, or 504 for three warpgroups:
    what ptxas makes do with."""
    if not feeders or feeders == 2:
        return (224, 224, 32) if feeders else (256, 256, 0)
    return (232, 224, 48) if k.page_size == 1 and not k.rope_aware else (232, 232, 40)


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def seesaw(k, s):
    knobs = choose(k, s)
    registers = split(k, knobs.feeders)
    left = s.role("left", warpgroups=1, registers=registers[0])
    right = s.role("right", warpgroups=1, registers=registers[1])
    feeder = None
    if knobs.feeders:
        feeder = s.role("feeder", warpgroups=knobs.feeders, registers=registers[2])

    # SMEM, 227 KiB: tiles of 64 rows x 64 columns of bf16 in the 128-byte swizzle, one of Q and two
    # of the cache for each 64 columns; then mbarriers, and what the roles exchange: P 8 KiB each
    # way, that of the right one over Q's last columns, M and l 256 bytes each way.
    for tensor, name, slots in (("q", "Q", 1), ("cache", "K", 2)):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=64, row_bytes=128, slots=slots)

    # A thread's operands and accumulators; row state and addresses, 30 or so, come besides.
    s.named("o", ".f32", k.d_v // 4, "O: 64 rows x half of d_v")
    s.named("s", ".f32", 32, "S, then P: 64 rows x a tile")
    s.named("p", ".b32", 16, "P as bf16, operand A of P V")
    s.named("qr", ".b32", 16 * knobs.held, "last columns of Q, operand A of Q K^T")
    d = mla_decode(k, s, left, right, feeder, knobs)

    for role in (left, right):
        with prologue(role):
            d.setup(role)
        with each_item(role):
            d.begin(role)
            d.clear()

    halves(d, left, right, knobs.refill)

    if feeder:
        with prologue(feeder):
            d.setup(feeder)
        for i in tiles(feeder, step=2):
            d.rows.convert(d.left, i)
            d.rows.load_scales(i)
            d.rows.convert(d.right, i + 1)
            d.rows.load_scales(i + 1)
            d.rows.convert(d.right, i)
            d.rows.convert(d.left, i + 1)
