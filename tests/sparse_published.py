"""Published shapes of sparse prefill over bf16 rows, with their tolerances, and of decode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlagen.families.mla_sparse.inputs import MlaSparsePrefillInputs
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig

PAGE = 64
# Heads, lists, keys of a list (None: all of its places), rows of a batch, rows of a cache.
HEADS = (128, 64, 32, 24, 16, 8)
TOPK = (64, 128, 192, 256, 512, 1024, 2048)
VALID = (0, 37, 40, 63, 64, 96, 97, 128, 192, None)
ROWS = tuple(batch * rows for batch in (1, 4) for rows in (1, 13, 16, 32, 64))
CACHE = (8192, 256, 1024)
SINKS: tuple[float | None, ...] = (None, 1.0, -np.inf, -1e38)
DATA = ("peaked", "diffuse", "randn")
# Of decode: places of a list and keys among them, and places of the second cache's list.
DECODE_LISTS = ((32, 5), (64, 64), (256, 130), (256, 256), (128, 0))
DECODE_EXTRA = (0, 32, 192)
# Of O.
COSINE, MEAN, MOST, FAR, FAR_SHARE = 0.99, 0.01, 0.02, 0.01, 0.0015
BF16_ROUNDING = 2.0**-9


@dataclass(frozen=True, eq=False)
class Published:
    """A call: its keys of each row, and the layer of the pool that it reads. `rounding`: the share
    of O that its largest error may have besides."""

    inputs: MlaSparsePrefillInputs
    lengths: Any
    layer: int
    rounding: float


def published(config: MlaSparsePrefillConfig, topk: int) -> Iterator[Published]:
    """Calls of all numbers of rows, each row with another number of keys. Half of them have lists
    that go on with -1 in the place of lengths."""
    heads = config.num_heads
    at = HEADS.index(heads) + TOPK.index(topk)
    valid = [topk if n is None else n for n in VALID if n is None or n <= topk]
    for n, rows in enumerate(ROWS, start=at):
        lengths = np.array([valid[(3 * n + row) % len(valid)] for row in range(rows)])
        sink, data = SINKS[n % 4], DATA[n % 3]
        inputs = mla_sparse_prefill_inputs(
            config, rows=rows, topk=topk, cache_rows=CACHE[n // 3 % 3], data=data,
            seed=n, pattern="distinct", lengths=lengths.tolist(), page_size=PAGE, layers=2,
            sink=None if sink is None else [sink + head % 3 for head in range(heads)],
        )  # fmt: skip
        if n % 2:
            inputs = shortened(inputs, lengths)
        yield Published(inputs, lengths, n // 2 % 2, BF16_ROUNDING if data == "peaked" else 0.0)


def shortened(inputs: Any, lengths: Any) -> Any:
    """The same keys, lists going on with -1 in the place of lengths."""
    places = np.arange(inputs.indices.shape[-1])
    lists = np.where(places < lengths[:, None], inputs.indices, -1).astype(np.int32)
    return replace(inputs, indices=lists, topk_length=None)
