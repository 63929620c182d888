"""Deterministic inputs with the statistics that attention kernels meet, and some they should fear.

* `realistic`: a few outlier channels with a large common offset in Q and K; a sink (key 0, and the
  first key of every 509th position) that draws much of the attention and has a small V; token norms
  and values with heavy tails; neighbouring tokens alike, topics that come back; heads of different
  temperature.
* `randn`: independent standard normal numbers.
* `late_max`: row maxima grow by more than 8 in log2 units several times, most of them late: every
  rescale path runs.
* `falling`: the largest scores come first and all later tiles lie far below them.
* `jumps`: single keys that a few rows of every wave score far above all before them, some by more
  than 8 in log2 units and some by less: the vote of one row moves the others' maxima.
* `every_tile`: what a kernel does for each tile shows in the output: maxima that overflow where one
  is overlooked, rows that grow once, each at a tile of its own, and rows at rest. `mlagen verify`
  takes it where no data is asked for.

A family may have more kinds, or fewer; its own module says which.

Where sequences have their own lengths each is made alone. Pages lie in the pool in random order,
among others that no sequence uses; whatever a pool or a cache holds that is no key is NaN, and
table entries past a sequence's pages name an unused page or one that does not exist.

The same arguments give the same bits.

This module holds what the inputs of every problem share: lengths, and pages in random order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.problem.arrays import unwritten

Array = npt.NDArray[np.float64]
Numbers = int | Sequence[int]

OUTLIER_CHANNELS = 4
SINK_EVERY = 509  # a prime: sinks fall on every place of a tile
TOPICS = 6
NO_PAGE = -1  # in a block table: no pool has it
STEP = 12.0  # log2 units that the scores of `late_max` rise and those of `falling` fall by


def require_kind(data: str, kinds: Any) -> None:
    """ConfigError for an unknown kind of data."""
    if data not in kinds:
        raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(kinds)}")


def dense_sizes(
    batch: int | None, seq_len: int | None, lengths: Any, num_keys: Any, start_pos: Any
) -> tuple[int, int, int, int]:
    """Batch, rows, keys and start position of a dense, contiguous call, with their defaults.
    ConfigError for those that a dense kernel has not."""
    if lengths is not None:
        raise ConfigError(
            f"lengths={shown(lengths)}: the kernel is dense, all its sequences have seq_len rows",
            hint="ragged=true makes a kernel that takes lengths",
        )
    for name, value in (("num_keys", num_keys), ("start_pos", start_pos)):
        if isinstance(value, Sequence):
            raise ConfigError(
                f"{name}={shown(value)}: the kernel is dense and contiguous, and takes one number",
                hint="ragged=true or a page_size makes a kernel that takes one a sequence",
            )
    batch, seq_len = 1 if batch is None else batch, 512 if seq_len is None else seq_len
    if start_pos < 0:
        raise ConfigError(f"start_pos={start_pos} must not be negative")
    keys = start_pos + seq_len if num_keys is None else num_keys
    for name, value in (("batch", batch), ("seq_len", seq_len)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    if keys < 0:
        raise ConfigError(f"num_keys={keys} must not be negative")
    return batch, seq_len, keys, start_pos


def rows_of(
    config: PrefillConfig,
    rng: np.random.Generator,
    batch: int | None,
    seq_len: int | None,
    lengths: Sequence[int] | None,
) -> list[int]:
    """The query rows of each sequence."""
    if config.ragged and lengths is not None:
        for name, value in (("batch", batch), ("seq_len", seq_len)):
            if value is not None:
                raise ConfigError(
                    f"{name}={value} and lengths={shown(lengths)} say the same twice",
                    hint="give one of them",
                )
        if not lengths or min(lengths) < 0:
            raise ConfigError(
                f"lengths={shown(lengths)}: one or more numbers, none of them negative"
            )
        return list(lengths)
    if lengths is not None:
        raise ConfigError(
            f"lengths={shown(lengths)}: the kernel is not ragged, all its sequences have seq_len "
            f"rows",
            hint="ragged=true makes a kernel that takes lengths; num_keys may differ by sequence",
        )
    batch = (3 if config.ragged else 1) if batch is None else batch
    seq_len = (300 if config.ragged else 512) if seq_len is None else seq_len
    for name, value in (("batch", batch), ("seq_len", seq_len)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    if not config.ragged:
        return [seq_len] * batch
    drawn = np.exp(rng.uniform(0.0, math.log(seq_len + 1), batch - 1)).astype(int)
    return [seq_len, *drawn.tolist()]


def each_of(name: str, numbers: Any, count: int) -> list[int]:
    """One number a sequence, none negative, from one for all or from as many."""
    each = list(numbers) if isinstance(numbers, Sequence) else [numbers] * count
    if len(each) != count:
        raise ConfigError(
            f"{name}={shown(each)} are {len(each)} numbers for {count} sequences",
            hint="one number for all, or one a sequence",
        )
    if min(each) < 0:
        raise ConfigError(f"{name}={shown(each)} must not be negative")
    return each


def shown(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers)


def paged(
    rng: np.random.Generator,
    page_size: int,
    tensors: Sequence[Sequence[npt.NDArray[Any]]],
    only: Collection[int] | None = None,
) -> tuple[npt.NDArray[np.int32], list[npt.NDArray[Any]]]:
    """Page table [sequences, pages] and pools of `tensors`, each of them the rows [keys, ...] of
    every sequence. All pools have the same pages. `only`: the sequences whose pages hold something;
    all others are `untouched`."""
    needed = [-(-len(rows) // page_size) for rows in tensors[0]]
    order = rng.permutation(sum(needed) + 2 + sum(needed) // 4)
    table = np.full((len(needed), max(needed) + 2), NO_PAGE, np.int32)
    table[:, 1::2] = order[-1]  # of the spare pages
    pools = [
        unwritten((len(order), page_size, *of[0].shape[1:]), of[0].dtype, compared=only is None)
        for of in tensors
    ]
    taken = 0
    for sequence, count in enumerate(needed):
        pages = order[taken : taken + count]
        taken += count
        table[sequence, :count] = pages
        if only is not None and sequence not in only:
            continue
        for pool, rows in zip(pools, tensors, strict=True):
            pool[pages[-1:]] = np.nan
            for index, page in enumerate(pages):
                part = rows[sequence][index * page_size : (index + 1) * page_size]
                pool[page, : len(part)] = part
    return table, pools
