"""On what a mutant runs: numbers of tiles that execute its section, and inputs that show it.

One workgroup of 256 query rows. Wrong keys must be visible in the output and both sides of every
branch must be taken, so the rows differ: the row maxima of two waves in four grow by more than the
rescale threshold with every tile, and those of the others hardly move, so that old tiles keep
their weight in the output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.scales import default_scale
from mlagen.errors import UnsupportedError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfig
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.problem import MlaConfig
from mlagen.mutation.listing import Listing
from mlagen.problem.formats import ELEMENT_TYPES

_STEP = 12.0  # log2 units that the maxima of climbing rows grow by from tile to tile
_ALONG = 4.0  # a climbing query's part along the direction of the climb
_TAIL = 17  # keys that the last tile lacks in the shape with a partial tile
_SPAN = 5  # numbers of tiles tried in a row, where the loop runs
_EXACT = re.compile(r"^N = (\d+)$")
_LOOP = re.compile(r"^loop\b")
_DRAIN = re.compile(r"^drain, \(N - (\d+)\) % (\d+) = (\d+)$")


@dataclass(frozen=True, slots=True)
class Shape:
    """`tiles` KV tiles, the last with `missing` keys less."""

    tiles: int
    missing: int

    def __str__(self) -> str:
        return f"N = {self.tiles}" + (f", {self.missing} keys short" if self.missing else "")


def shapes_for(listing: Listing, sections: Sequence[str]) -> tuple[Shape, ...]:
    """The shapes whose runs execute any of the sections; the likeliest to show a defect first.

    Sections that stand for one number of tiles run with that number. Prologue, loop and drain run
    with all numbers from the first that the loop serves, until every phase was entered and left
    twice; a drain with those that lead to it. Setup and epilogue run with all of these.
    """
    exact = sorted(int(m[1]) for name in listing.sections if (m := _EXACT.match(name)))
    phases = sum(1 for name in listing.sections if _LOOP.match(name))
    first = max(exact, default=0) + 1
    looped = range(first, first + max(_SPAN, 2 * phases + 1))
    tiles: dict[int, None] = {}
    for section in sections:
        if one := _EXACT.match(section):
            tiles.update(dict.fromkeys([int(one[1])]))
        elif drain := _DRAIN.match(section):
            back, period, phase = (int(group) for group in drain.groups())
            tiles.update(dict.fromkeys(n for n in looped if (n - back) % period == phase))
        elif section in ("setup", "epilogue"):
            tiles.update(dict.fromkeys([*exact, *looped]))
        else:
            tiles.update(dict.fromkeys(reversed(looped)))
    return tuple(Shape(n, missing) for missing in (_TAIL, 0) for n in tiles)


Config = MhaConfig | MlaConfig


def mutable(config: Any) -> Config:
    """The problem, if its kernels' mutants can be judged. UnsupportedError: K and V are not tensors
    of their own, or pages are those of MLA."""
    if isinstance(config, MhaConfig):
        return config
    assert isinstance(config, MlaConfig)
    if config.kv_form != "k_and_v" or config.page_size:
        raise UnsupportedError(
            f"mutants of kv_form={config.kv_form}, page_size={config.page_size} are not judged",
            hint="kv_form=k_and_v, page_size=0",
        )
    return config


def make_inputs(
    config: Config, shape: Shape, *, copies: int = 1, seed: int = 0
) -> MhaInputs | MlaPrefillInputs:
    """Inputs of one shape; `copies` batch entries, all alike.

    With a partial last tile the queries stand after all keys, and a causal mask hides none from
    any wave; with whole tiles they stand at the end of the keys, and it cuts through their tiles.
    Either way all tiles are computed.
    """
    keys = max(0, config.kv_block * shape.tiles - shape.missing)
    rows, depth, heads = config.q_tile, config.qk_width, config.num_kv_heads
    rng = np.random.default_rng([seed, shape.tiles, shape.missing])
    scale = default_scale(config)
    q = rng.standard_normal((rows, config.num_heads, depth))
    k = rng.standard_normal((keys, heads, depth))
    v = rng.standard_normal((keys, heads, config.v_width))
    direction = rng.standard_normal((heads, depth))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    along = np.repeat(direction, config.group, axis=0)
    climbing = np.arange(rows) // config.q_block_size % 4 < 2
    wanted = np.where(climbing, _ALONG, 0.0)[:, None, None]
    q += (wanted - (q * along).sum(axis=2, keepdims=True)) * along
    # The steps do not fall on the tiles' first keys: a tile has keys of both levels.
    level = _STEP * ((np.arange(keys) + config.kv_block - 5) // config.kv_block - 1)
    k += (level / (_ALONG * scale * math.log2(math.e)))[:, None, None] * direction
    element = ELEMENT_TYPES[config.dtype]
    start = keys if shape.missing else max(0, keys - rows)
    arrays: dict[str, Any] = {"start_pos": start}
    if config.by_sequence:
        arrays["start_pos"] = np.full(copies, start, np.int32)
    if config.sink:
        arrays["sinks"] = np.zeros(config.num_heads, np.float32)
    if config.ragged:
        arrays["q_offsets"] = (np.arange(copies + 1) * rows).astype(np.int32)
        q = np.concatenate([q] * copies)
    else:
        q = np.repeat(q[None], copies, axis=0)
    if config.page_size:
        k, v, arrays["page_table"] = _paged(config, k, v, copies)
        arrays["kv_lengths"] = np.full(copies, keys, np.int32)
    elif config.ragged:
        k, v = (np.concatenate([x] * copies) for x in (k, v))
        arrays["kv_offsets"] = (np.arange(copies + 1) * keys).astype(np.int32)
    else:
        k, v = (np.repeat(x[None], copies, axis=0) for x in (k, v))
    q, k, v = (x.astype(element) for x in (q, k, v))
    if isinstance(config, MlaConfig):
        return MlaPrefillInputs(config, q, k, v, scale, **arrays)
    return MhaInputs(config, q, k, v, scale, **arrays)


def _paged(
    config: Config, k: npt.NDArray[Any], v: npt.NDArray[Any], copies: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Pools and page table of `copies` equal sequences, which share their pages. Pages lie in
    reverse, after one that is no sequence's; rows that are no keys are NaN."""
    count, size = max(1, config.pages(len(k))), config.page_size
    pools = []
    for rows in (k, v):
        pool = np.full((count + 1, size, *rows.shape[1:]), np.nan)
        held = np.full((count * size, *rows.shape[1:]), np.nan)
        held[: len(rows)] = rows
        pool[1:] = held.reshape(count, size, *rows.shape[1:])[::-1]
        pools.append(pool)
    table = np.tile(np.arange(count, 0, -1, dtype=np.int32), (copies, 1))
    return pools[0], pools[1], table
