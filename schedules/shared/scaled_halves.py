"""The two math warpgroups of `schedules/shared/queries_as_rows.py` where scales of columns multiply
sums and P: each has a P for both groups of its values, and two for the other one.

| left, tiles i and i + 1                        | right, tiles i + 1 and i                        |
|------------------------------------------------|-------------------------------------------------|
| softmax(i), M -> right; O *= alpha             |                                                 |
| O += P(i) V(i), group by group                 | M from left; softmax(i+1), M -> left; O *= alpha|
| M from right; both P(i) -> right               | both P(i+1) -> left; O += P(i+1) V(i+1)         |
| O *= alpha; O += P(i+1) V(i+1), P from right   | O += P(i) V(i), P from left                     |
| S(i+2), its scales between groups of columns   | S(i+3), the same                                |

The columns that are no values are released by both: the second P of each tile lies in their place.
"""

from mlagen.dsl import epilogue, tiles


def scaled_halves(d, left, right):
    """The loops and ends of both."""
    for i in tiles(left, step=2):
        d.row_maximum(i)
        d.running_maximum(i, d.max_left, fresh=True)
        d.rescale(i)
        d.exponent(i)
        for group in range(2):
            d.weigh_own(i, group)
            d.pv_group(i, d.left, group)
        d.take_right_maximum(i + 1)
        d.weigh_other(i, 0)
        d.load_queries(i + 2, left)
        d.rescale(i + 1)
        d.pv_group(i + 1, d.left, 0, d.p_right)
        d.pv_group(i + 1, d.left, 1, d.p_right_2)
        d.weigh_other(i, 1)
        d.refill(d.left, i + 2)
        d.refill(d.left, i + 3)
        d.give_last(i + 2)
        d.give_last(i + 3)
        d.scores(i + 2)
    with epilogue(left):
        d.store_sum(d.sum_left)
        d.finish(d.sum_right, left)

    for i in tiles(right, step=2):
        d.row_maximum(i + 1)
        d.take_left_maximum(i)
        d.running_maximum(i + 1, d.max_right, fresh=False)
        d.exponent(i + 1)
        d.rescale(i)
        d.weigh_both(i + 1)
        for group in range(2):
            d.weigh_own(i + 1, group)
            d.pv_group(i + 1, d.right, group)
        d.pv_group(i, d.right, 0, d.p_left)
        d.late_arrive(i + 1, d.p_right)
        d.pv_group(i, d.right, 1, d.p_left_2)
        d.refill(d.right, i + 3)
        d.refill(d.right, i + 2)
        d.scores(i + 3)
    with epilogue(right):
        d.store_sum(d.sum_right)
        d.finish(d.sum_left, right)
