"""Made-up partial results of split MLA prefill work: see `mlagen.attention.made_up`.

What no kernel may look at, or must replace, is NaN: O of a partial that saw no key, rows of a
partial tile past its sequence's end, and partial tiles that no group takes.

The first four kinds of data are of LSEs. Three more: `unseen`, partials that saw no key, of some
lines all; `far`, weights over the whole range of exponents; `every_partial`, each weighs more, or
less, than all before it together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.made_up import STEP, Array, each_of, require_kind
from mlagen.attention.prefill.plan import WorkPlan, plan_work
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.problem.arrays import unwritten

# LSEs [partials, rows, heads]
Draw = Callable[[np.random.Generator, tuple[int, int, int]], Array]

JUMP = 100.0  # natural units between two partials' LSEs; fp32 ends at e^88.7
SPARE = 2  # partial tiles that no group takes


def mla_reduce_inputs(
    config: MlaReduceConfig,
    *,
    seq_len: int | Sequence[int] = 300,
    num_keys: int | Sequence[int] | None = None,
    workgroups: int = 64,
    tile_q: int = 256,
    partials: int | Sequence[int] | None = None,
    **drawn: Any,
) -> MlaReduceInputs:
    """Partial results of `plan_work` for causal sequences of `seq_len` rows against `num_keys` keys
    (as many where not given), on `workgroups` workgroups a head.

    More workgroups cut tiles into more partials, as long as there are units of 128 keys; where
    nothing is cut there is no group.

    `partials`: instead of a plan's groups, one group of so many partials for each number, of
    `seq_len` rows, one number or one a group.

    `drawn`: `data` ("realistic"), `seed` (0), and `only`, the groups whose partials hold something
    (all): others are `untouched`.

    Raises ConfigError for an unknown kind of data, numbers that are too small or too many, and what
    `plan_work` refuses.
    """
    if partials is not None:
        counts = list(partials) if isinstance(partials, Sequence) else [partials]
        of_each = each_of("seq_len", seq_len, len(counts))
        each_of("partials", counts, len(counts))
        ends = np.cumsum(of_each)
        final = np.stack([ends - of_each, ends], axis=1).astype(np.int32)
        indptr = np.cumsum([0, *counts], dtype=np.int32)
        return _of_groups(config, indptr, final, max(of_each), int(ends[-1]), **drawn)
    rows = list(seq_len) if isinstance(seq_len, Sequence) else [seq_len]
    keys = rows if num_keys is None else each_of("num_keys", num_keys, len(rows))
    plan = plan_work(
        rows, keys, config.num_heads, workgroups * config.num_heads, causal=True, tile_q=tile_q
    )
    return planned_inputs(config, plan, sum(rows), **drawn)


def planned_inputs(
    config: MlaReduceConfig,
    plan: WorkPlan,
    rows: int,
    **drawn: Any,
) -> MlaReduceInputs:
    """Partial results for a plan's groups; `rows`: those of O. Partial tiles lie in random order.
    `drawn` as for `mla_reduce_inputs`. ConfigError for an unknown kind of data."""
    final = plan.reduce_final_map
    return _of_groups(config, plan.reduce_indptr, final, plan.shape.tile_q, rows, **drawn)


def _of_groups(
    config: MlaReduceConfig,
    indptr: npt.NDArray[np.int32],
    final: npt.NDArray[np.int32],
    tile: int,
    rows: int,
    *,
    data: str = "realistic",
    seed: int = 0,
    only: Collection[int] | None = None,
) -> MlaReduceInputs:
    """Partials of groups, each in a tile of `tile` rows of the partial buffers."""
    require_kind(data, MLA_REDUCE_KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    heads, count = config.num_heads, int(indptr[-1])
    lines = ((count + SPARE) * tile, heads)
    partial_o = unwritten((*lines, config.depth), np.float32, compared=only is None)
    partial_lse = unwritten(lines, np.float32, compared=only is None)
    places = rng.permutation(count + SPARE)[:count].astype(np.int32) * np.int32(tile)
    for group, (first, end) in enumerate(final.tolist()):
        slots = places[slice(*indptr[group : group + 2].tolist())]
        if not len(slots) or (only is not None and group not in only):
            continue
        o = rng.standard_normal((len(slots), end - first, heads, config.depth))
        lse = MLA_REDUCE_KINDS[data](rng, (len(slots), end - first, heads))
        o *= 0.7 ** rng.standard_exponential((len(slots), 1, heads, 1))
        o[np.isnan(lse) | np.isneginf(lse)] = np.nan
        for index, slot in enumerate(slots):
            partial_o[slot : slot + end - first] = o[index]
            partial_lse[slot : slot + end - first] = lse[index]
    return MlaReduceInputs(config, partial_o, partial_lse, indptr, final, places, rows)


def _randn(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    return rng.normal(0.0, 2.0, shape)


def _realistic(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Scores of rows that look at a sink in the first partial; the last one is beyond some causal
    rows, which see nothing of it."""
    lse = rng.normal(8.0, 1.0, shape)
    lse[:1] += rng.uniform(0.0, 4.0, shape[1:])
    if shape[0] > 1:
        lse[-1, : shape[1] // 4] = -np.inf
    return lse


def _stairs(sign: float) -> Draw:
    def stairs(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
        steps = rng.uniform(0.0, STEP * np.log(2.0), shape)
        return sign * np.cumsum(steps, axis=0)

    return stairs


def _unseen(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Many partials that saw no key, told by -inf or by NaN, and lines of which all are such."""
    lse = rng.normal(0.0, 2.0, shape)
    nothing = rng.choice(np.array([-np.inf, np.nan]), shape)
    hidden = rng.random(shape) < 0.4
    hidden |= rng.random(shape[1:]) < 0.2
    return np.where(hidden, nothing, lse)


def _far(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Weights over the whole range of exponents, and far below it."""
    return rng.normal(0.0, 80.0, shape)


def _every_partial(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """In lines of every third row each partial weighs more than all before it, by more than fp32
    holds: a maximum that overlooks it overflows. In those of the next each weighs less, as much; in
    the others all weigh alike."""
    lse = rng.normal(0.0, 1.0, shape)
    step = JUMP * np.arange(shape[0])[:, None, None]
    lse[:, 0::3] += step
    lse[:, 1::3] -= step
    return lse


MLA_REDUCE_KINDS: Mapping[str, Draw] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
    "unseen": _unseen,
    "far": _far,
    "every_partial": _every_partial,
}
