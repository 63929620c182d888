"""Made-up inputs of MHA: see `mlagen.testdata`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.problem import MhaConfig, MhaInputs, default_scale
from mlagen.problem.prefill import PrefillConfig
from mlagen.problem.prefill_inputs import ELEMENT_TYPES, check_scale
from mlagen.testdata.common import (
    OUTLIER_CHANNELS,
    SINK_EVERY,
    STEP,
    TOPICS,
    Array,
    Numbers,
    Sizes,
    dense_sizes,
    each_of,
    paged,
    require_kind,
    rows_of,
)

JUMP_DIRECTIONS = 12


def mha_inputs(
    config: MhaConfig,
    *,
    batch: int | None = None,
    seq_len: int | None = None,
    lengths: Sequence[int] | None = None,
    num_keys: Numbers | None = None,
    start_pos: Numbers = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
) -> MhaInputs:
    """Inputs of an MHA problem.

    Dense: `batch` sequences (1) of `seq_len` rows (512). Ragged: `lengths`, the rows of each
    sequence, or without them `batch` of them (3), the first of `seq_len` rows (300), the others
    drawn, short ones as likely as long ones. `num_keys` is `start_pos` plus the rows where it is
    not given. Where sequences have their own, `num_keys` and `start_pos` may be one number for all
    or one for each, and rows and keys may be 0.

    With a sink: sinks from below the scores to above them, and one of -inf where there are several
    heads.

    Raises ConfigError for numbers that are too small or that the form does not take, an unknown
    kind of data, and what MhaInputs refuses.
    """
    require_kind(data, KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)
    if not config.by_sequence:
        sizes = dense_sizes(batch, seq_len, lengths, num_keys, start_pos)
        return _dense(config, rng, sizes, data, scale)
    rows = rows_of(config, rng, batch, seq_len, lengths)
    starts = each_of("start_pos", start_pos, len(rows))
    wanted = [s + r for s, r in zip(starts, rows, strict=True)] if num_keys is None else num_keys
    keys = each_of("num_keys", wanted, len(rows))
    element = ELEMENT_TYPES[config.dtype]
    made = []
    for r, n, start in zip(rows, keys, starts, strict=True):
        # An empty sequence is made of one row or key too, which is cut off.
        shapes = Shapes(config, 1, max(r, 1), max(n, 1), start, scale)
        q, k, v = (array[0].astype(element) for array in KINDS[data](rng, shapes))
        made.append((q[:r], k[:n], v[:n]))
    queries, key_rows, value_rows = ([entry[part] for entry in made] for part in range(3))
    more: dict[str, Any] = {"sinks": _sinks(rng, config)}  # before the pages: the same without them
    if config.ragged:
        more["q_offsets"] = np.cumsum([0, *rows], dtype=np.int32)
    if config.page_size:
        table, (k, v) = paged(rng, config.page_size, (key_rows, value_rows))
        more |= {"kv_lengths": np.array(keys, np.int32), "page_table": table}
    else:
        more["kv_offsets"] = np.cumsum([0, *keys], dtype=np.int32)
        k, v = np.concatenate(key_rows), np.concatenate(value_rows)
    return MhaInputs(
        config,
        np.concatenate(queries) if config.ragged else np.stack(queries),
        k,
        v,
        scale,
        np.array(starts, np.int32),
        **more,
    )


def _dense(
    config: MhaConfig, rng: np.random.Generator, sizes: Sizes, data: str, scale: float
) -> MhaInputs:
    """Inputs of a dense, contiguous problem."""
    shapes = Shapes(config, sizes.batch, sizes.seq_len, max(sizes.keys, 1), sizes.start_pos, scale)
    q, k, v = (array.astype(ELEMENT_TYPES[config.dtype]) for array in KINDS[data](rng, shapes))
    k, v = k[:, : sizes.keys], v[:, : sizes.keys]
    return MhaInputs(config, q, k, v, scale, sizes.start_pos, sinks=_sinks(rng, config))


def _sinks(rng: np.random.Generator, config: MhaConfig) -> npt.NDArray[np.float32] | None:
    """Natural units, from below most rows' log-sum-exp to above them, in random order."""
    if not config.sink:
        return None
    heads = config.num_heads
    finite = max(heads - 1, 1)
    levels = np.linspace(-4.0, 14.0, finite) if finite > 1 else np.full(1, 6.0)
    levels = rng.permutation(levels) + rng.uniform(-1.0, 1.0, finite)
    if heads > 1:
        levels = np.insert(levels, 1, -np.inf)
    return levels.astype(np.float32)


class Shapes:
    """What the kinds of data need to know. `levels`: columns that may carry a key's level."""

    def __init__(
        self,
        config: PrefillConfig,
        batch: int,
        seq_len: int,
        keys: int,
        start_pos: int,
        scale: float,
    ) -> None:
        self.config, self.keys, self.start_pos, self.scale = config, keys, start_pos, scale
        self.depth, self.levels = config.qk_width, config.v_width
        self.q = (batch, seq_len, config.num_heads, self.depth)
        self.kv = (batch, keys, config.num_kv_heads, self.depth)

    def each_query_head(self, of_kv_head: Array) -> Array:
        """[num_kv_heads, depth] -> [num_heads, depth]."""
        return np.repeat(of_kv_head, self.config.group, axis=0)


def _randn(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    return rng.standard_normal(s.q), rng.standard_normal(s.kv), rng.standard_normal(s.kv)


def _realistic(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    depth, heads = s.depth, s.config.num_kv_heads
    batch, keys = s.kv[:2]
    positions = s.start_pos + s.q[1]
    q, k, v = _randn(rng, s)

    # Topics: slow random walks over absolute positions, shared by all heads.
    walk = rng.standard_normal((batch, max(keys, positions), TOPICS))
    for position in range(1, walk.shape[1]):
        walk[:, position] = 0.98 * walk[:, position - 1] + 0.2 * walk[:, position]
    basis = rng.standard_normal((heads, TOPICS, depth)) / (2 * math.sqrt(TOPICS))
    k += np.einsum("bnt,htd->bnhd", walk[:, :keys], basis)
    q += np.einsum(
        "bnt,htd->bnhd",
        walk[:, s.start_pos : positions],
        np.repeat(basis, s.config.group, axis=0),
    )

    # Norms with heavy tails, by token for K, by element for V; a temperature by head for Q.
    k *= 1.0 + 0.15 * np.abs(rng.standard_t(4, (*s.kv[:3], 1)))
    v *= 0.5 + 0.3 * np.abs(rng.standard_t(4, s.kv))
    q *= rng.uniform(0.6, 1.5, (1, 1, s.q[2], 1))

    # Outlier channels: large, with a common sign, in a few places of each head.
    offset = np.zeros((heads, depth))
    for head in range(heads):
        channels = rng.choice(s.levels, OUTLIER_CHANNELS, replace=False)
        offset[head, channels] = rng.choice([-1.0, 1.0], OUTLIER_CHANNELS) * rng.uniform(
            5.0, 12.0, OUTLIER_CHANNELS
        )
    k += offset
    along = rng.uniform(0.2, 0.5, (s.q[2], 1))  # some heads look at sinks more than others
    q += along * s.each_query_head(offset)
    v[..., rng.integers(s.levels)] *= 6.0

    # Sinks: keys along the queries' common direction, some 3 to 10 (natural) above the others.
    direction = offset / np.square(offset).sum(axis=1, keepdims=True)
    lift = rng.uniform(6.0, 8.0, (heads, 1)) / (0.35 * s.scale)
    k[:, ::SINK_EVERY] += direction * lift
    v[:, ::SINK_EVERY] *= 0.05
    return q, k, v


def _stairs(sign: float) -> Callable[[np.random.Generator, Shapes], tuple[Array, Array, Array]]:
    def stairs(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
        q, k, v = _randn(rng, s)
        # One direction of each head carries a level that all its queries see.
        direction = rng.standard_normal((s.config.num_kv_heads, s.depth))
        direction[:, s.levels :] = 0.0
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        along = s.each_query_head(direction)
        q += (4.0 - (q * along).sum(axis=3, keepdims=True)) * along
        # A step in every second eighth of the keys, at a place that is not a tile's.
        eighth = np.arange(s.keys) * 8 // s.keys
        level = sign * STEP * ((eighth + 1) // 2)
        # Even an element's own spread leaves each step above 8.
        level = level + rng.uniform(-0.5, 0.5, s.keys)
        k += (level / (4.0 * s.scale * math.log2(math.e)))[:, None, None] * direction
        return q, k, v

    return stairs


def _jumps(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    q, k, v = _randn(rng, s)
    # Some directions of each head; a row lies along one of them, a key that jumps as well.
    shape = (s.config.num_kv_heads, JUMP_DIRECTIONS, s.depth)
    directions = rng.standard_normal(shape)
    directions[..., s.levels :] = 0.0
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    each = s.each_query_head(directions)  # [heads, directions, depth]
    of_row = rng.integers(JUMP_DIRECTIONS, size=s.q[1])
    q += 4.0 * each[:, of_row].transpose(1, 0, 2)
    jumping = np.sort(rng.choice(s.keys, min(s.keys, 3 + s.keys // 90), replace=False))
    height = rng.uniform(2.0, STEP, len(jumping)).cumsum()  # a sawtooth that climbs
    for key, level in zip(jumping, height, strict=True):
        along = directions[:, rng.integers(JUMP_DIRECTIONS)]
        k[:, key] += along * (min(level, 90.0) / (4.0 * s.scale * math.log2(math.e)))
    return q, k, v


KINDS: dict[str, Callable[[np.random.Generator, Shapes], tuple[Any, Any, Any]]] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
    "jumps": _jumps,
}
