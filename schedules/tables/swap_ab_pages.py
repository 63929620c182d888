"""What swap-AB tables over pages declare alike: the producer, rooms and registers of S, P and O."""

from mlagen.dsl import copy, prologue, tiles


def tile_to_prefetch(k, s):
    """The knob of a tile that is brought to L2 before it is fetched."""
    return s.choice("ahead", *((0, 1, 2) if k.page_size > 1 else (0,)),
                    comment="tile after the fetched one that is prefetched to L2")  # fmt: skip


def fetching_role(k, s):
    """One thread that fetches pages by TMA, or four warps where a page is one row."""
    single = k.page_size > 1
    return s.role("producer", warps=1 if single else 4, single=single)


def weights_and_sums(k, s, rows, p_bytes):
    """P, of `p_bytes` a query row, and what warps exchange; registers of scores and O."""
    s.smem.room("P", p_bytes * rows, align=8 * p_bytes)
    s.smem.room("of warps", 4 * 4 * rows)  # maxima, sums in the end: fp32 of each warp

    s.named("o", ".f32", k.d_v // 64 * rows // 2, "O^T: d_v x query rows")
    s.named("s", ".f32", rows // 2, "S^T, then P^T: 64 keys x query rows")


def fetch(producer, pages, queries, storage):
    """The producer's part of the table."""
    with prologue(producer):
        pages.find(producer)
    for i in tiles(producer):
        queries.load(i)
        for pipeline in storage.arriving:
            copy(pipeline, i)
        pages.prefetch(i)
        pages.look_up(i)
