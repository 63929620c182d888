"""How queries and rows reach SMEM on Blackwell, in schedules of one block and of a CTA pair.

Rows of bf16, and those that products take as they are stored, are copied there by cp.async. Of
others a feeder makes bf16: it loads a tile to registers while the one before it is multiplied.
"""

from mlagen.dsl import copy, tiles
from mlagen.targets.nvidia.dsl import acquire


def items_of_blocks(s):
    """The knob of blocks, or CTA pairs, that take several items."""
    several = s.choice("persistent", 0, 1, comment="blocks take one work item after another")
    s.persistent = "apart" if several else ""


def query_pipeline(s, Q, feeder, softmax, math, by_tma):
    """The pipeline of Q. The softmax, which waits for scores anyway, makes bf16 of e4m3. Where
    roles take several items, math gives it back."""
    reader = feeder if by_tma else softmax
    s.smem.pipeline(
        "query", *Q, producer=reader.name, consumer=math.name, resident=True,
        releases=1 if s.persistent else 0, producer_threads=0 if by_tma else reader.threads,
        by_warps=False if by_tma else "fenced",
    )  # fmt: skip


def convert(d, feeder, rows):
    """The loop of a feeder that makes bf16 of rows."""
    for i in tiles(feeder):
        copy(rows, i)
        d.load_item_queries(feeder, i)
        d.fetch(rows, i + 1)
        d.look_up_for(rows, i + 2)


def fetch(d, feeder, rows):
    """The loop of a block's feeder that copies rows as they are."""
    for i in tiles(feeder):
        d.find_rows(i)
        d.look_up(i + 1)
        copy(rows, i)
        d.load_item_queries(feeder, i)


def fetch_for_pair(d, feeder, keys, values, raw_keys, raw_values):
    """The same for a CTA pair: rows land in the own block, and are handed on to the leader."""
    for i in tiles(feeder):
        d.find_rows(i + 1)
        d.look_up(i + 2)
        acquire(keys, i + 1)
        copy(raw_keys, i + 1)
        copy(keys, i)
        acquire(values, i + 1)
        copy(raw_values, i + 1)
        copy(values, i)
