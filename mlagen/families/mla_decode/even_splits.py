"""How often the sequences of an MLA decode call are split: what is estimated to end first.

The estimate is of microseconds, by the costs that the kernel's variant has
(`mlagen.families.mla_decode.costs`).

Up to as many items as there are SMs run at once, and what each takes grows with how many there are:
they share DRAM and L2. At its end the merge reads all parts again; sequences in two parts have
twice as many rows for it as a full GPU takes at once. Where blocks put parts together, there is no
merge, and the time that this takes hardly depends on how many there are.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.attention.latent.costs import Costs
from mlagen.families.mla_decode.unit import Unit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GAIN = 0.99  # more splits must be faster by this factor
SECOND = 2.0  # microseconds that the first split must gain: its launch takes the host 4
LIKELY = 8  # choices whose items are distributed one by one where lengths differ


def parts_together(tiles: Ints, row_blocks: Ints, unit: Unit) -> int:
    """Parts of every row block that blocks put together, all at the same time, where that is not
    estimated to end after the splits of `even_counts` and their merge; else 1."""
    costs, best, total = unit.costs, 1, int(row_blocks.sum())
    if not (tiles * row_blocks).any():
        return best
    _, least = _likeliest(tiles, row_blocks, unit)
    for count in TOGETHER[1:]:
        if count > unit.together or count * total > unit.blocks:
            break
        longest = int(longest_split(tiles, count).max())
        time = float(costs.item(longest, count * total / unit.blocks))
        time += costs.once(longest, 0) + costs.together + costs.of_each * count
        if time < least or (best == 1 and time <= least):
            best, least = count, time
    return best


def even_counts(tiles: Ints, row_blocks: Ints, unit: Unit) -> Ints:
    """Splits of each sequence of `tiles` tiles and `row_blocks` row blocks, on all SMs of a GPU:
    those of the tried ones that are estimated to end first."""
    return _likeliest(tiles, row_blocks, unit)[0]


def _likeliest(tiles: Ints, row_blocks: Ints, unit: Unit) -> tuple[Ints, float]:
    """These splits, and when they are estimated to end."""
    total = int((tiles * row_blocks).sum())
    best = np.ones(len(tiles), np.int64)
    if not total:
        return best, 0.0
    costs, blocks = unit.costs, unit.blocks
    longest, started = int(tiles.max()), max(int(row_blocks.sum()), 1)
    most = min(max(-(-4 * blocks // started), 4), 2 * blocks)
    tried = {-(-longest // count) for count in range(1, most + 1)}
    # Where lengths differ, sizes at which the longest are cut into many and the others are not.
    if tiles.min() < longest:
        shortest = max(total / blocks / 4, 1)
        steps = np.arange(0, np.log(longest / shortest), 0.03)
        tried |= {round(size) for size in shortest * np.exp(steps)}
    sizes = sorted({max(size, 1) for size in tried}, reverse=True)
    choices = [np.maximum(-(-tiles // size), 1) for size in sizes]
    ends = [estimate(costs, tiles, row_blocks, counts, blocks) for counts in choices]
    if tiles.min() < longest:  # then it is a lower bound only
        likely = sorted(sorted(range(len(ends)), key=ends.__getitem__)[:LIKELY])
        choices = [choices[index] for index in likely]
        ends = [end(costs, tiles, row_blocks, counts, blocks) for counts in choices]
    ends = [time - SECOND * bool((c == 1).all()) for c, time in zip(choices, ends, strict=True)]
    chosen = next(n for n, time in enumerate(ends) if time * GAIN <= min(ends))
    return choices[chosen], ends[chosen]


def boundaries(tiles: int, count: int) -> list[int]:
    """The first tiles of `count` even splits of so many tiles, the first one's 0 left out. Splits
    of two tiles and more begin at even ones: blocks compute tiles in pairs, and other code for an
    odd one at the end."""
    step = _step(tiles, count)
    steps = -(-tiles // step)
    return [step * (i * steps // count) for i in range(1, count)]


def _step(tiles: Any, count: Any) -> Any:
    """Tiles that splits are whole numbers of."""
    return 1 + (tiles >= 2 * count)


def longest_split(tiles: Any, count: Any) -> Any:
    """Tiles of the longest of `count` even splits, an odd last one counted as two."""
    step = _step(tiles, count)
    return step * -(-tiles // (step * count))


def estimate(costs: Costs, tiles: Ints, row_blocks: Ints, counts: Ints, blocks: int) -> float:
    """Microseconds of all items, longest first, and of the merge: the end is not before the
    average, nor before that of items that must follow each other on one SM."""
    of_sequence, each, once = _times(costs, tiles, row_blocks, counts, blocks)
    items = int(of_sequence.sum())
    order = np.argsort(-each)
    ends = np.cumsum(of_sequence[order])
    # The longest item of each round: those before it are on other SMs.
    firsts = each[order][np.searchsorted(ends, np.arange(0, items, blocks), "right")]
    rounds: Floats = firsts * np.arange(1, len(firsts) + 1)
    average = float((each * of_sequence).sum()) / blocks
    return max(average, float(rounds.max())) + once


def end(costs: Costs, tiles: Ints, row_blocks: Ints, counts: Ints, blocks: int) -> float:
    """The same, each item taken by the SM that is free first."""
    of_sequence, each, once = _times(costs, tiles, row_blocks, counts, blocks)
    return longest_first(np.repeat(each, of_sequence), blocks) + once


def longest_first(times: Floats, blocks: int) -> float:
    """When the last of these items ends, each taken by the SM that is free first."""
    free = [0.0] * blocks
    for time in np.sort(times)[::-1].tolist():
        heapq.heapreplace(free, free[0] + time)
    return max(free)


def _times(
    costs: Costs, tiles: Ints, row_blocks: Ints, counts: Ints, blocks: int
) -> tuple[Ints, Floats, float]:
    """Items of each sequence, the time of each of these, and what comes once."""
    of_sequence = counts * row_blocks
    longest = longest_split(tiles, counts)
    each = costs.item(longest, min(int(of_sequence.sum()), blocks) / blocks)
    parts = int((of_sequence * (1 + (counts == 2)))[counts > 1].sum())
    return of_sequence, each, costs.once(int(longest.max()), parts)
