"""Deterministic inputs with the statistics that attention kernels meet, and some they should fear.

* `realistic`: a few outlier channels with a large common offset in Q and K; a sink (key 0, and the
  first key of every 509th position) that draws much of the attention and has a small V; token norms
  and values with heavy tails; neighbouring tokens alike, topics that come back; heads of different
  temperature.
* `randn`: independent standard normal numbers.
* `late_max`: row maxima grow by more than 8 in log2 units several times, most of them late: every
  rescale path runs.
* `falling`: the largest scores come first and all later tiles lie far below them.

The same arguments give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem import MhaConfig, MhaInputs, default_scale
from mlagen.problem.mha_inputs import ELEMENT_TYPES, check_scale

Array = npt.NDArray[np.float64]

OUTLIER_CHANNELS = 4
SINK_EVERY = 509  # a prime: sinks fall on every place of a tile
TOPICS = 6
STEP = 12.0  # log2 units that the scores of `late_max` rise and those of `falling` fall by


def mha_inputs(
    config: MhaConfig,
    *,
    batch: int = 1,
    seq_len: int = 512,
    num_keys: int | None = None,
    start_pos: int = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
) -> MhaInputs:
    """Inputs of an MHA problem. `num_keys` is `start_pos + seq_len` where it is not given.

    Raises ConfigError for a length below 1, an unknown kind of data, and what MhaInputs refuses.
    """
    if start_pos < 0:
        raise ConfigError(f"start_pos={start_pos} must not be negative")
    keys = start_pos + seq_len if num_keys is None else num_keys
    for name, value in (("batch", batch), ("seq_len", seq_len), ("num_keys", keys)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    if data not in KINDS:
        raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)
    shapes = _Shapes(config, batch, seq_len, keys, start_pos, scale)
    q, k, v = KINDS[data](rng, shapes)
    element = ELEMENT_TYPES[config.dtype]
    return MhaInputs(
        config, q.astype(element), k.astype(element), v.astype(element), shapes.scale, start_pos
    )


class _Shapes:
    """What the kinds of data need to know."""

    def __init__(
        self, config: MhaConfig, batch: int, seq_len: int, keys: int, start_pos: int, scale: float
    ) -> None:
        self.config, self.keys, self.start_pos, self.scale = config, keys, start_pos, scale
        self.q = (batch, seq_len, config.num_heads, config.depth)
        self.kv = (batch, keys, config.num_kv_heads, config.depth)

    def each_query_head(self, of_kv_head: Array) -> Array:
        """[num_kv_heads, depth] -> [num_heads, depth]."""
        return np.repeat(of_kv_head, self.config.group, axis=0)


def _randn(rng: np.random.Generator, s: _Shapes) -> tuple[Array, Array, Array]:
    return rng.standard_normal(s.q), rng.standard_normal(s.kv), rng.standard_normal(s.kv)


def _realistic(rng: np.random.Generator, s: _Shapes) -> tuple[Array, Array, Array]:
    depth, heads = s.config.depth, s.config.num_kv_heads
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
        channels = rng.choice(depth, OUTLIER_CHANNELS, replace=False)
        offset[head, channels] = rng.choice([-1.0, 1.0], OUTLIER_CHANNELS) * rng.uniform(
            5.0, 12.0, OUTLIER_CHANNELS
        )
    k += offset
    along = rng.uniform(0.2, 0.5, (s.q[2], 1))  # some heads look at sinks more than others
    q += along * s.each_query_head(offset)
    v[..., rng.integers(depth)] *= 6.0

    # Sinks: keys along the queries' common direction, some 3 to 10 (natural) above the others.
    direction = offset / np.square(offset).sum(axis=1, keepdims=True)
    lift = rng.uniform(6.0, 8.0, (heads, 1)) / (0.35 * s.scale)
    k[:, ::SINK_EVERY] += direction * lift
    v[:, ::SINK_EVERY] *= 0.05
    return q, k, v


def _stairs(sign: float) -> Callable[[np.random.Generator, _Shapes], tuple[Array, Array, Array]]:
    def stairs(rng: np.random.Generator, s: _Shapes) -> tuple[Array, Array, Array]:
        q, k, v = _randn(rng, s)
        # One direction of each head carries a level that all its queries see.
        direction = rng.standard_normal((s.config.num_kv_heads, s.config.depth))
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


KINDS: dict[str, Callable[[np.random.Generator, _Shapes], tuple[Any, Any, Any]]] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
}
