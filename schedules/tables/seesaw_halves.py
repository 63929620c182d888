"""The loops of seesaw's two math warpgroups, over pages and over lists (`tables/seesaw.py`)."""

from mlagen.dsl import epilogue, tiles


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
        d.queries.load(i + 2, left)
        d.refill(d.left, i + 2, when=refill == "late")
        d.rescale(i + 1)
        d.pv(i + 1, d.left, d.p_right)
        d.queries.load_held(i + 2, left)
        d.queries.hold(i + 2)
        d.qk(i + 2, d.left, first=True)
        d.refill(d.left, i + 3)
        d.qk(i + 2, d.right, first=False)
        d.rows.prefetch(d.left, i + 2)
        d.rows.prefetch(d.left, i + 3)
    with epilogue(left):
        d.output.store_sum(left)
        d.output.finish(left)
        d.output.sync_sums(left)

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
        d.rows.prefetch(d.right, i + 3)
        d.rows.prefetch(d.right, i + 2)
    with epilogue(right):
        d.output.store_sum(right)
        d.output.finish(right)
        d.output.sync_sums(right)
