"""MLA on Hopper, seesaw: queries are the rows of products, a block has up to 64 of them, and two
warpgroups share its tiles and its output.

A pass has two tiles of 64 keys. The left math warpgroup computes the scores of even tiles and
output columns 0..255, the right one those of odd tiles and columns 256..511. They share one running
maximum and exchange their P through SMEM.

| left, tiles i and i + 1                        | right, tiles i + 1 and i                        |
|------------------------------------------------|-------------------------------------------------|
| softmax(i), M -> right; O *= alpha             |                                                 |
| O += P(i) V(i), P from registers               | M from left; softmax(i+1), M -> left; O *= alpha|
| M from right; P(i) -> right                    | P(i+1) -> left; O += P(i+1) V(i+1), registers   |
| O *= alpha; O += P(i+1) V(i+1), P from right   | O += P(i) V(i), P from left                     |
| fetch columns 0..255 of i+2, i+3               | fetch columns 256..575 of i+3, i+2              |
| S(i+2) = Q K(i+2)                              | S(i+3) = Q K(i+3)                               |

How rows come is the part `rows` of the operations. Pages of bf16 are fetched as above, with no
other role. Pages of e4m3 come the same way into half of the SMEM of their tiles, and a feeder
converts them in place. Listed rows are the feeder's, and the math warpgroups give their places
back. What a tile past a work item's last one needs belongs to the next item.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.dsl import each_item, epilogue, prologue, schedule, tiles


@schedule(problem=LatentProblem, target="sm_90a")
def seesaw(k, s, choose, operations):
    """`choose(k, s)`: the knobs, and registers a thread of left, right and feeder, of 512 in all,
    or 504 for three warpgroups. `operations(k, s, left, right, feeder, knobs)`: a family's."""
    knobs, (many, more, few) = choose(k, s)
    left = s.role("left", warpgroups=1, registers=many)
    right = s.role("right", warpgroups=1, registers=more)
    feeder = None
    if knobs.feeders:
        feeder = s.role("feeder", warpgroups=knobs.feeders, registers=few)

    # SMEM, 227 KiB: tiles of 64 rows x 64 columns of bf16 in the 128-byte swizzle, one of Q and two
    # of the cache for each 64 columns; then mbarriers, and what the roles exchange: P 8 KiB each
    # way, that of the right one over Q's last columns, M and l 256 bytes each way.
    s.smem.tile_row("Q", k.d_qk // 64, "q", rows=64)
    s.smem.tile_row("K", k.d_qk // 64, "cache", rows=64, slots=2)

    # A thread's operands and accumulators; row state and addresses, 30 or so, come besides.
    s.named("o", ".f32", k.d_v // 4, "O: 64 rows x half of d_v")
    s.named("s", ".f32", 32, "S, then P: 64 rows x a tile")
    s.named("p", ".b32", 16, "P as bf16, operand A of P V")
    s.named("qr", ".b32", 16 * knobs.held, "last columns of Q, operand A of Q K^T")
    d = operations(k, s, left, right, feeder, knobs)
    rows = d.rows

    for role in s.roles:
        with prologue(role):
            d.setup(role)
        with each_item(role):
            d.begin(role)
            if role is not feeder:
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
        d.refill(d.left, i + 2, when=knobs.refill == "early")
        d.take_right_maximum(i + 1)
        d.store_p(i, d.p_left)
        d.queries.load(i + 2, left)
        d.refill(d.left, i + 2, when=knobs.refill == "late")
        d.rescale(i + 1)
        d.pv(i + 1, d.left, d.p_right)
        d.queries.load_held(i + 2, left)
        d.queries.hold(i + 2)
        d.qk(i + 2, d.left, first=True)
        d.refill(d.left, i + 3)
        d.qk(i + 2, d.right, first=False)
        rows.prefetch(d.left, i + 2)
        rows.prefetch(d.left, i + 3)

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
        d.queries.hold(i + 3)
        d.qk(i + 3, d.right, first=True)
        d.qk(i + 3, d.left, first=False)
        rows.prefetch(d.right, i + 3)
        rows.prefetch(d.right, i + 2)

    for role in (left, right):
        with epilogue(role):
            d.output.store_sum(role)
            d.output.finish(role)
            d.output.sync_sums(role)

    if not feeder:
        return
    if rows.does == "convert":
        for i in tiles(feeder, step=2):
            rows.convert(d.left, i)
            rows.load_scales(i)
            rows.convert(d.right, i + 1)
            rows.load_scales(i + 1)
            rows.convert(d.right, i)
            rows.convert(d.left, i + 1)
    elif rows.does == "gather":
        for i in tiles(feeder, step=2):
            d.next_item(i + 2, feeder)
            d.next_keys(i + 2, feeder)
            d.next_tiles(i + 2, feeder)
            rows.find_rows(i + 2)
            rows.find_rows(i + 3)
            rows.gather(d.left, i + 2)
            rows.gather(d.right, i + 3)
            rows.gather(d.right, i + 2)
            rows.gather(d.left, i + 3)
            rows.look_up(i + 2)
            rows.look_up(i + 3)
    elif knobs.boxes == 4:  # a whole tile is on its way
        for i in tiles(feeder, step=2):
            rows.measure(i)
            rows.feed(d.left, i, 0)
            rows.publish(i)
            rows.fetch(rows.last, i, 0)
            rows.find_rows(i + 1)
            rows.look_up(i + 2)
            rows.fetch(rows.last, i + 1, 1)
            rows.feed(rows.middle, i, 2)
            rows.feed(rows.last, i, 0)
            rows.measure(i + 1)
            rows.feed(rows.last, i + 1, 1)
            rows.fetch(rows.middle, i + 1, 2)
            rows.fetch(d.left, i + 1, 0)
            rows.feed(rows.middle, i + 1, 2)
            rows.publish(i + 1)
            rows.feed(d.left, i + 1, 0)
            rows.find_rows(i + 2)
            rows.look_up(i + 3)
            rows.fetch(d.left, i + 2, 0)
            rows.fetch(rows.middle, i + 2, 2)
    else:
        for i in tiles(feeder, step=2):
            for group in rows.pieces(i):
                for piece, _ in group:
                    rows.measure(piece.tile, when=piece.begins)
                    rows.feed(piece.columns, piece.tile, piece.room)
                    rows.publish(piece.tile, when=piece.begins)
                    rows.look_up(piece.tile + 1, when=piece.begins and not rows.shared)
                for _, later in group:
                    rows.find_rows(later.tile, when=later.begins)
                    rows.look_up(later.tile + 1, when=later.begins and rows.shared)
                    rows.fetch(later.columns, later.tile, later.room)
