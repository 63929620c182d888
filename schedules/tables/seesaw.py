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

`seesaw` is MLA decode over pages. `seesaw_listed` is the same over rows that a query's list names,
64 of them a tile, with up to 64 heads of a query as query rows. Its feeder fetches rows one by one,
and the math warpgroups give their places back. What a list does not name arrives as zeros, and its
scores become -inf. Rows of bf16 come by cp.async. Quantised rows come to registers, in pieces of
128 columns, two pieces at a time, and are stored as bf16 where there is place. With more than 64
heads the two blocks of a query may be a CTA cluster: the feeder of each has half of the rows, a
whole tile of them at a time, and stores them in both blocks.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.seesaw import SeesawKnobs
from mlagen.dsl import each_item, epilogue, prologue, schedule, tiles
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import mla_decode


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


def memory(k, s, held):
    """Tiles and registers; `held`: tiles of 64 columns of Q in registers."""
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
    s.named("qr", ".b32", 16 * held, "last columns of Q, operand A of Q K^T")


def halves(d, left, right, refill):
    """The loops and ends of the two math warpgroups."""
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
        d.refill(d.left, i + 2, when=refill == "early")
        d.take_right_maximum(i + 1)
        d.store_p(i, d.p_left)
        d.load_queries(i + 2, left)
        d.refill(d.left, i + 2, when=refill == "late")
        d.rescale(i + 1)
        d.pv(i + 1, d.left, d.p_right)
        d.load_held(i + 2, left)
        d.hold_queries(i + 2)
        d.qk(i + 2, d.left, first=True)
        d.refill(d.left, i + 3)
        d.qk(i + 2, d.right, first=False)
        d.prefetch(d.left, i + 2)
        d.prefetch(d.left, i + 3)
    with epilogue(left):
        d.store_sum(d.sum_left)
        d.finish(d.sum_right, left)
        d.sync_sums(left)

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
        d.prefetch(d.right, i + 3)
        d.prefetch(d.right, i + 2)
    with epilogue(right):
        d.store_sum(d.sum_right)
        d.finish(d.sum_left, right)
        d.sync_sums(right)


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def seesaw(k, s):
    knobs = choose(k, s)
    registers = split(k, knobs.feeders)
    left = s.role("left", warpgroups=1, registers=registers[0])
    right = s.role("right", warpgroups=1, registers=registers[1])
    feeder = None
    if knobs.feeders:
        feeder = s.role("feeder", warpgroups=knobs.feeders, registers=registers[2])

    memory(k, s, knobs.held)
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
            d.convert(d.left, i)
            d.load_scales(i)
            d.convert(d.right, i + 1)
            d.load_scales(i + 1)
            d.convert(d.right, i)
            d.convert(d.left, i + 1)


@schedule(problem=LatentProblem, target="sm_90a")
def seesaw_listed(
    k, s, stored, operations, persistent, grained=False, narrow=False, apart=False
):  # fmt: skip
    """The schedule of `operations(k, s, left, right, feeder, knobs)` for rows of the form `stored`;
    None: bf16. `persistent`: a block does one item after another. `grained`: numbers are f16 in
    multiples of a key's grain. `narrow`: what concerns rows takes so many
    registers that pieces have fewer columns. `apart`: or that they are fetched one by one."""
    causal, extra = getattr(k, "causal", False), getattr(k, "extra", False)
    # ptxas spills numbers of f16 beside many tokens, unless two blocks share their conversion.
    clusters = (2,) if grained and getattr(k, "q_len", 1) > 2 else (2, 1)
    blocks = s.choice("cluster", *clusters, comment="blocks that share the conversion of rows") if (
        stored and k.num_heads > 64
    ) else 1  # fmt: skip
    s.cta_cluster(blocks)
    shared = blocks > 1
    # Scales of fewer columns than a piece has leave no registers for pieces of two tiles, scales of
    # rows for one of the two places only; positions beside all scales of a row none for four.
    fine = narrow or (stored and stored.block in (32, 64) and not stored.paged_exponents)
    if shared:
        listed = grained and causal and not extra and k.dtype == "bf16"
        widths = (2,) if narrow or listed else (4, 2)
    else:
        widths = (1,) if fine else (2,) if stored else (5, 4, 2)
    boxes = s.choice("boxes", *widths, comment="tiles of 64 columns that share a barrier")
    tight = stored and (shared or stored.scales == "key" or grained)
    whens = ("early",) if tight else ("early", "late")
    refill = s.choice("left_refill", *whens,
                      comment="before the left one stores its P, or after it")  # fmt: skip
    fed = (224, 208, 72)
    many, more, few = fed if stored else (224, 232, 48) if persistent else (232, 224, 48)
    left = s.role("left", warpgroups=1, registers=many)
    right = s.role("right", warpgroups=1, registers=more)
    feeder = s.role("feeder", warpgroups=1, registers=few)

    memory(k, s, held=1)
    knobs = SeesawKnobs(boxes, 1, refill, persistent=persistent, feeders=int(stored is not None),
                        gathered=not stored, grained=grained)  # fmt: skip
    d = operations(k, s, left, right, feeder, knobs)

    for role in (left, right):
        with prologue(role):
            d.setup(role)
        with each_item(role):
            d.begin(role)
            d.clear()

    halves(d, left, right, refill)

    with prologue(feeder):
        d.setup(feeder)
    with each_item(feeder):
        d.begin(feeder)
    if not stored:
        for i in tiles(feeder, step=2):
            d.next_item(i + 2, feeder)
            d.next_keys(i + 2, feeder)
            d.next_tiles(i + 2, feeder)
            d.find_rows(i + 2)
            d.find_rows(i + 3)
            d.gather(d.left, i + 2)
            d.gather(d.right, i + 3)
            d.gather(d.right, i + 2)
            d.gather(d.left, i + 3)
            d.look_up(i + 2)
            d.look_up(i + 3)
    elif boxes == 4:  # a whole tile is on its way
        for i in tiles(feeder, step=2):
            d.measure(i)
            d.feed(d.left, i, 0)
            d.publish(i)
            d.fetch(d.last, i, 0)
            d.find_rows(i + 1)
            d.look_up(i + 2)
            d.fetch(d.last, i + 1, 1)
            d.feed(d.middle, i, 2)
            d.feed(d.last, i, 0)
            d.measure(i + 1)
            d.feed(d.last, i + 1, 1)
            d.fetch(d.middle, i + 1, 2)
            d.fetch(d.left, i + 1, 0)
            d.feed(d.middle, i + 1, 2)
            d.publish(i + 1)
            d.feed(d.left, i + 1, 0)
            d.find_rows(i + 2)
            d.look_up(i + 3)
            d.fetch(d.left, i + 2, 0)
            d.fetch(d.middle, i + 2, 2)
    else:
        for i in tiles(feeder, step=2):
            order = (d.left, i), (d.right, i), (d.right, i + 1), (d.left, i + 1)
            pieces = [((columns,), tile) for half, tile in order for columns in half]
            ahead = [*pieces, *((columns, tile + 2) for columns, tile in pieces[:2])][2:]
            first = pieces[0], pieces[len(pieces) // 2]
            together = 1 if apart or stored.scales == "key" else 2
            for at in range(0, len(pieces), together):
                group = range(at, at + together)
                for n in group:
                    if pieces[n] in first:
                        d.measure(pieces[n][1])
                    d.feed(*pieces[n], n % 2)
                    if pieces[n] in first:
                        d.publish(pieces[n][1])
                        if not shared:
                            d.look_up(pieces[n][1] + 1)
                for n in group:
                    if ahead[n] in (*first, ((d.left[0],), i + 2)):
                        d.find_rows(ahead[n][1])
                        if shared:
                            d.look_up(ahead[n][1] + 1)
                    d.fetch(*ahead[n], n % 2)
