"""The kinds of made-up Q, K and V of prefill; `mlagen.attention.made_up` says what each is."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mlagen.attention.made_up import OUTLIER_CHANNELS, SINK_EVERY, STEP, TOPICS, Array
from mlagen.attention.prefill.every_tile import every_tile
from mlagen.attention.prefill.made_up import Draw, Shapes

JUMP_DIRECTIONS = 12


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


def _stairs(sign: float) -> Draw:
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


KINDS: Mapping[str, Draw] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
    "jumps": _jumps,
    "every_tile": every_tile,
}
