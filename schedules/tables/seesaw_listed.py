"""Sparse MLA on Hopper, seesaw over rows that a query's list names, 64 of them a tile.

A block has up to 64 heads of a query as the rows of products. The two math warpgroups are those of
`tables/seesaw.py`; its feeder fetches rows one by one, and the math warpgroups give their places
back. What a list does not name arrives as zeros, and its scores become -inf.

Rows of bf16 come by cp.async. Quantised rows come to registers, in pieces of 128 columns, two
pieces at a time, and are stored as bf16 where there is place. With more than 64 heads the two
blocks of a query may be a CTA cluster: the feeder of each has half of the rows, a whole tile of
them at a time, and stores them in both blocks.
"""

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.dsl import each_item, prologue, schedule, tiles
from mlagen.schedules.tables.seesaw_halves import halves


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

    # SMEM and registers as in `tables/seesaw.py`.
    for tensor, name, slots in (("q", "Q", 1), ("cache", "K", 2)):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=64, row_bytes=128, slots=slots)
    s.named("o", ".f32", k.d_v // 4, "O: 64 rows x half of d_v")
    s.named("s", ".f32", 32, "S, then P: 64 rows x a tile")
    s.named("p", ".b32", 16, "P as bf16, operand A of P V")
    s.named("qr", ".b32", 16, "last columns of Q, operand A of Q K^T")
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
            d.rows.find_rows(i + 2)
            d.rows.find_rows(i + 3)
            d.rows.gather(d.left, i + 2)
            d.rows.gather(d.right, i + 3)
            d.rows.gather(d.right, i + 2)
            d.rows.gather(d.left, i + 3)
            d.rows.look_up(i + 2)
            d.rows.look_up(i + 3)
    elif boxes == 4:  # a whole tile is on its way
        for i in tiles(feeder, step=2):
            d.rows.measure(i)
            d.rows.feed(d.left, i, 0)
            d.rows.publish(i)
            d.rows.fetch(d.rows.last, i, 0)
            d.rows.find_rows(i + 1)
            d.rows.look_up(i + 2)
            d.rows.fetch(d.rows.last, i + 1, 1)
            d.rows.feed(d.rows.middle, i, 2)
            d.rows.feed(d.rows.last, i, 0)
            d.rows.measure(i + 1)
            d.rows.feed(d.rows.last, i + 1, 1)
            d.rows.fetch(d.rows.middle, i + 1, 2)
            d.rows.fetch(d.left, i + 1, 0)
            d.rows.feed(d.rows.middle, i + 1, 2)
            d.rows.publish(i + 1)
            d.rows.feed(d.left, i + 1, 0)
            d.rows.find_rows(i + 2)
            d.rows.look_up(i + 3)
            d.rows.fetch(d.left, i + 2, 0)
            d.rows.fetch(d.rows.middle, i + 2, 2)
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
                        d.rows.measure(pieces[n][1])
                    d.rows.feed(*pieces[n], n % 2)
                    if pieces[n] in first:
                        d.rows.publish(pieces[n][1])
                        if not shared:
                            d.rows.look_up(pieces[n][1] + 1)
                for n in group:
                    if ahead[n] in (*first, ((d.left[0],), i + 2)):
                        d.rows.find_rows(ahead[n][1])
                        if shared:
                            d.rows.look_up(ahead[n][1] + 1)
                    d.rows.fetch(*ahead[n], n % 2)
