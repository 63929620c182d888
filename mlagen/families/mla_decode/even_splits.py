"""How often the sequences of an MLA decode call are split: what is estimated to end first.

The estimate is of microseconds, and knows three GPUs. Numbers of an H200 are fitted by eye to 340
runs of other split lengths, each after another library's kernel: 16 and 128 heads, bf16, 1 to 32
sequences of 1024 to 16384 keys (`benchmarks/decode_grid.py --sweep`, at commits cf30770 and
4ee70ac), longer ones warm. Those of few query rows and of products of e4m3 are fitted to 90 runs of
16 heads, 1 to 64 sequences of 1024 to 32768 keys (at commit ee4c8433), those of both together to
170 runs (at commit ff2e49ba). Those of an MI355X are
predictions, of the cycle model and of 6.5 TB/s from HBM for all 256 compute units: nothing was
measured on one. Those of a B200 are predictions as well: a bound by pipe of what was executed in
the emulator, of which FlashMLA's published speed is 82 %, and assumptions, each of which is named
where it stands.

Up to as many items as there are SMs run at once, and what each takes grows with how many there are:
they share DRAM and L2. At its end the merge reads all parts again; sequences in two parts have
twice as many rows for it as a full GPU takes at once. Where blocks put parts together, there is no
merge, and the time that this takes hardly depends on how many there are.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.attention.latent.problem import item_rows
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.unit import B200_SMS, HOPPER, MI355X_CUS, Unit
from mlagen.problem.formats import ELEMENT_TYPES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GAIN = 0.99  # more splits must be faster by this factor
SECOND = 2.0  # microseconds that the first split must gain: its launch takes the host 4
LIKELY = 8  # choices whose items are distributed one by one where lengths differ


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds. `start` and `tile`: of an item alone on the GPU and of each of its tiles.
    `crowd`: what is added where every SM has one, the least of these (once, for each tile). `pair`
    and `loop`: once, of code that items of one tile, or up to two, do not reach, where other
    kernels ran in between. `merge`: of the second kernel; `part`: of 64 rows that it reads, twice
    as much where they are in two parts. `together` and `of_each`: where blocks put parts together,
    once and for each part of a row block. `further`: of another item of a block that takes several,
    in place of `start`, where that was looked at."""

    start: float = 9.5
    tile: float = 1.5
    crowd: tuple[tuple[float, float], ...] = ((4.0, 0.75), (11.0, 0.15))
    pair: float = 1.5
    loop: float = 1.0
    merge: float = 1.5
    part: float = 0.025  # 64 x 512 fp32: 5.2 TB/s, from L2
    together: float = 2.1
    of_each: float = 0.015
    further: float = 0.0

    def item(self, tiles: Any, share: float) -> Any:
        """An item of so many tiles where this share of the SMs has one at the same time."""
        added = np.min([once + each * tiles for once, each in self.crowd], axis=0)
        alone: Any = self.start + self.tile * tiles
        return alone + share**1.5 * added

    def once(self, longest: int, parts: float) -> float:
        """What comes once: code that is not there yet, and the merge of so many parts."""
        code = self.pair * (longest > 1) + self.loop * (longest > 2)
        return code + (self.merge + self.part * parts if parts else 0.0)


BF16 = Costs()
# An e4m3 cache is turned into bf16 first: 635 us for 256 items of 128 tiles.
E4M3 = Costs(tile=2.2)

# Keys as rows, over bf16, over e4m3 and with products of e4m3; and these with queries as rows.
FEW = Costs(7.1, 1.15, ((1.05, 2.3), (6.9, 1.27)), pair=0.0, loop=0.0, merge=2.25, part=0.02)
FEW_E4M3 = replace(FEW, start=7.6, tile=1.75, crowd=((1.6, 0.3), (3.6, 0.1)), part=0.025)
FEW_FP8 = Costs(7.0, 0.87, ((1.05, 0.92), (4.4, 0.5)), pair=0.0, loop=0.0, merge=2.25, part=0.02)
FP8 = Costs(10.1, 1.1, ((2.0, 1.2), (5.0, 0.3)), pair=0.0, loop=0.0, merge=3.6, together=1.4,
            of_each=0.12)  # fmt: skip

# 64 keys take 4,006 cycles at 2.4 GHz with 64 rows and 4,840 with 128, over e4m3 4,856 and 5,394
# (`mlagen simulate mla_decode_gfx950 --shape lengths=2048 --constant hbm=100000`). The rest is a
# kernel's start, of the same model: 4 us, dispatch, the first tiles' way, the output's.
MI355X = Costs(start=7.0, crowd=(), pair=0.0, loop=0.0, merge=4.0)
MI355X_TILES = {64: (1.67, 2.02), 128: (2.02, 2.25)}  # by rows of a block, of bf16 and of others
HBM = 6.5e6  # bytes a microsecond that all compute units together get

# A B200, of which nothing was measured. Clocks of an SM for 64 keys, of a block and of a CTA pair:
# SMEM's, the slowest pipe (`benchmarks/mla_decode_bound_sm100.py`).
B200_CLOCKS = {"bf16": (1992, 1416), "rope-aware": (2252, 1676), "fp8": (968, 664)}
# So many in a microsecond are 2,250 TFLOP/s, NVIDIA's data sheet. FlashMLA's sparse prefill has
# 82 % of its bound by the same rates (docs/mla_sparse_speed.md): decode is assumed to have it, too.
B200_MHZ, B200_REACHED = 1856, 0.82
# 8 TB/s, the data sheet's; FlashMLA's README has 3,000 of 3,350 GB/s for decode on an H800, and the
# same share is assumed here.
B200_HBM = 8e6 * 0.9
# Assumed: four accesses of 0.8 us one after the other (item, length, page, rows), and 1 us from the
# last product to the last store. A further item of a block has this end, and the scores and the
# softmax of a tile, which nothing hides; what it waits for is on its way before that. The launch is
# in all choices. The merge, which is launched ahead,
# is taken to have H200's 1.5 us; it reads 64 rows at the 11.3 TB/s that FlashMLA's sparse prefill
# draws from L2 at its published speed.
B200 = Costs(start=4.2, crowd=(), pair=0.0, loop=0.0, merge=1.5, part=64 * 512 * 4 / 11.3e6,
             further=2.0)  # fmt: skip


def costs_of(config: MlaDecodeConfig, unit: Unit = HOPPER) -> Costs:
    """Those of a problem. Blocks of few rows have less to merge, down to half."""
    rows = item_rows(config)
    costs = BF16 if config.cache_dtype == "bf16" else E4M3
    if unit.few:
        costs = FEW if config.cache_dtype == "bf16" else FEW_E4M3
        costs = FEW_FP8 if config.compute == "fp8" else costs
    elif config.compute == "fp8" and unit.target == "sm_90a":
        costs = FP8
    if unit.target == "gfx950":
        tile = MI355X_TILES[unit.rows][config.cache_dtype != "bf16"]
        row = config.cache_columns * ELEMENT_TYPES[config.cache_element].itemsize
        shared = TILE * row * MI355X_CUS / HBM  # where all compute units have one
        costs = replace(MI355X, tile=tile, crowd=((0.0, max(shared - tile, 0.0)),))
    if unit.target == "sm_100a":
        costs = _b200(config, unit, rows)
    return replace(costs, part=costs.part * max(min(rows, unit.rows) / 64, 0.5))


def _b200(config: MlaDecodeConfig, unit: Unit, rows: int) -> Costs:
    """Of items that a block takes, or a CTA pair. Of `rows` query rows that share keys the row
    blocks run side by side, so that HBM gives each key once."""
    form = "fp8" if config.compute == "fp8" else "rope-aware" if config.rope_aware else "bf16"
    tile = B200_CLOCKS[form][unit.ctas - 1] / B200_MHZ / B200_REACHED
    row = config.cache_columns * ELEMENT_TYPES[config.cache_element].itemsize
    readers = B200_SMS / unit.ctas / -(-rows // unit.rows)  # where all SMs have an item
    shared = TILE * row * readers / B200_HBM
    return replace(B200, tile=tile, crowd=((0.0, max(shared - tile, 0.0)),))


def parts_together(config: MlaDecodeConfig, tiles: Ints, row_blocks: Ints, unit: Unit) -> int:
    """Parts of every row block that blocks put together, all at the same time, where that is not
    estimated to end after the splits of `even_counts` and their merge; else 1."""
    costs, best, total = costs_of(config, unit), 1, int(row_blocks.sum())
    if not (tiles * row_blocks).any():
        return best
    _, least = _likeliest(config, tiles, row_blocks, unit)
    for count in TOGETHER[1:]:
        if count > unit.together or count * total > unit.blocks:
            break
        longest = int(longest_split(tiles, count).max())
        time = float(costs.item(longest, count * total / unit.blocks))
        time += costs.once(longest, 0) + costs.together + costs.of_each * count
        if time < least or (best == 1 and time <= least):
            best, least = count, time
    return best


def even_counts(config: MlaDecodeConfig, tiles: Ints, row_blocks: Ints, unit: Unit) -> Ints:
    """Splits of each sequence of `tiles` tiles and `row_blocks` row blocks, on all SMs of a GPU:
    those of the tried ones that are estimated to end first."""
    return _likeliest(config, tiles, row_blocks, unit)[0]


def _likeliest(
    config: MlaDecodeConfig, tiles: Ints, row_blocks: Ints, unit: Unit
) -> tuple[Ints, float]:
    """These splits, and when they are estimated to end."""
    total = int((tiles * row_blocks).sum())
    best = np.ones(len(tiles), np.int64)
    if not total:
        return best, 0.0
    costs, blocks = costs_of(config, unit), unit.blocks
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
