"""Queries and latent rows of a made-up model, of the first four kinds of
`mlagen.attention.made_up`: latent rows are normalised, sinks have small latents, and rotary columns
turn with the position."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlagen.attention.made_up import OUTLIER_CHANNELS, SINK_EVERY, STEP, TOPICS, Array


@dataclass(frozen=True)
class Sizes:
    """Query heads, new tokens, and columns of a row: latent ones, and rotary ones after them."""

    heads: int
    q_len: int
    latent: int
    rope: int


class Model:
    """What all sequences of one model have in common."""

    def __init__(self, rng: np.random.Generator, sizes: Sizes, scale: float) -> None:
        self.sizes, self.scale = sizes, scale
        heads, latent, rope = sizes.heads, sizes.latent, sizes.rope
        self.q = (sizes.q_len, heads, latent + rope)
        # Latent channels: gains of the normalisation, topics, a few outliers of a common sign.
        self.gain = np.exp(0.3 * rng.standard_normal(latent))
        self.basis = rng.standard_normal((TOPICS, latent)) / math.sqrt(TOPICS)
        self.offset = np.zeros(latent)
        outliers = rng.choice(latent, OUTLIER_CHANNELS, replace=False)
        self.offset[outliers] = rng.choice([-1.0, 1.0], OUTLIER_CHANNELS) * rng.uniform(
            5.0, 12.0, OUTLIER_CHANNELS
        )
        self.temperature = rng.uniform(0.5, 1.2, (heads, 1))
        self.along = rng.uniform(0.2, 0.5, (heads, 1))  # some heads look at sinks more than others
        # Rotary columns: pairs, each turning at its own frequency from a common start.
        self.frequency = 10000.0 ** -(np.arange(rope // 2) / (rope // 2))
        self.start = rng.uniform(0.5, 2.0, rope // 2) * np.exp(
            2j * math.pi * rng.uniform(size=rope // 2)
        )
        # One direction of the rotary columns for the scores' levels: values do not know of them.
        self.direction = rng.standard_normal(rope)
        self.direction /= np.linalg.norm(self.direction)

    def rotary(self, positions: Array) -> Array:
        """[positions, rope]: the start vector, turned."""
        turned = self.start * np.exp(1j * positions[:, None] * self.frequency)
        pairs = np.stack([turned.real, turned.imag], axis=-1)
        return pairs.reshape(len(positions), self.sizes.rope)


# Queries [q_len, heads, columns] and the rows [length, columns] that they attend to.
Kind = Callable[[np.random.Generator, Model, int], tuple[Array, Array]]


def _randn(rng: np.random.Generator, m: Model, length: int) -> tuple[Array, Array]:
    return rng.standard_normal(m.q), rng.standard_normal((length, m.q[-1]))


def _realistic(rng: np.random.Generator, m: Model, length: int) -> tuple[Array, Array]:
    latent = m.sizes.latent
    q, rows = _randn(rng, m, length)
    c, rope = rows[:, :latent], rows[:, latent:]

    # Topics: slow random walks over the positions.
    walk = rng.standard_normal((length + m.sizes.q_len, TOPICS))
    for position in range(1, len(walk)):
        walk[position] = 0.98 * walk[position - 1] + 0.2 * walk[position]
    c += walk[:length] @ m.basis
    q[..., :latent] += (walk[length:] @ m.basis)[:, None] / 8
    c /= np.sqrt(np.square(c).mean(axis=1, keepdims=True)) / m.gain
    c *= 1.0 + 0.2 * np.abs(rng.standard_t(4, c.shape))

    rope *= 0.5
    rope += m.rotary(np.arange(length, dtype=float))
    now = length - m.sizes.q_len + np.arange(m.sizes.q_len, dtype=float)
    q[..., latent:] += m.rotary(now)[:, None]
    q *= m.temperature

    # Sinks: small latents, but far along the queries' common direction, some 3 to 10 (natural)
    # above most others.
    c[::SINK_EVERY] *= 0.05
    lift = rng.uniform(7.5, 10.0) / (0.35 * m.scale)
    c[::SINK_EVERY] += m.offset * lift / np.square(m.offset).sum()
    c += m.offset
    q[..., :latent] += m.along * m.offset
    return q, rows


def _stairs(sign: float) -> Kind:
    def stairs(rng: np.random.Generator, m: Model, length: int) -> tuple[Array, Array]:
        q, rows = _randn(rng, m, length)
        q_rope, rope = q[..., m.sizes.latent :], rows[:, m.sizes.latent :]
        q_rope += (4.0 - q_rope @ m.direction)[..., None] * m.direction
        # A step in every second eighth of the keys, at a place that is not a tile's.
        eighth = np.arange(length) * 8 // max(length, 1)
        level = sign * STEP * ((eighth + 1) // 2) + rng.uniform(-0.5, 0.5, length)
        rope += (level / (4.0 * m.scale * math.log2(math.e)))[:, None] * m.direction
        return q, rows

    return stairs


LATENT_KINDS: dict[str, Kind] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
}
