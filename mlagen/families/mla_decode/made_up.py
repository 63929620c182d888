"""Made-up inputs of MLA decode: see `mlagen.attention.made_up`.

The first four kinds; latent rows are normalised, sinks have small latents, and rotary columns turn
with the position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlagen.attention.made_up import (
    NO_PAGE,
    OUTLIER_CHANNELS,
    SINK_EVERY,
    STEP,
    TOPICS,
    Array,
    require_kind,
)
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MODEL_SCALE, MlaDecodeInputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import BF16, E4M3, ELEMENT_TYPES

# Of an e4m3 cache and of e4m3 queries: what is made up here stays below 448 times it.
FP8_STEP, FP8_QUERY_STEP = 0.125, 0.0625


def mla_decode_inputs(
    config: MlaDecodeConfig,
    *,
    batch: int = 4,
    max_length: int = 5000,
    lengths: Sequence[int] | None = None,
    data: str = "realistic",
    seed: int = 0,
    scale: float = MODEL_SCALE,
) -> MlaDecodeInputs:
    """Inputs of an MLA decode problem with a shuffled, poisoned cache.

    `lengths`: rows of each sequence; without them `batch` of them are drawn, 1 .. `max_length`,
    short ones as likely as long ones. Pages lie in the pool in random order, among others that no
    sequence uses. All that is no key is NaN: unused pages, and rows past a sequence's end. Table
    entries past a sequence's pages name an unused page or one that does not exist.

    Raises ConfigError for a number below 1, an unknown kind of data, and what MlaDecodeInputs
    refuses.
    """
    for name, value in (("batch", batch), ("max_length", max_length)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    require_kind(data, MLA_DECODE_KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    if lengths is None:
        lengths = np.exp(rng.uniform(0.0, math.log(max_length + 1), batch)).astype(int).tolist()
    if not len(lengths) or min(lengths) < 0:
        raise ConfigError(f"lengths {list(lengths)} must be one or more, none negative")

    element, stored = ELEMENT_TYPES[config.q_element], ELEMENT_TYPES[config.cache_element]
    kv_scale = FP8_STEP if config.cache_dtype == "fp8_e4m3" else 1.0
    q_scale = FP8_QUERY_STEP if config.dtype == "fp8_e4m3" else 1.0
    shared = _Model(rng, config, scale)
    needed = [config.pages(length) for length in lengths]
    spare = 2 + sum(needed) // 4
    order = rng.permutation(sum(needed) + spare)
    pool = (len(order), config.page_size, config.num_kv_heads)
    cache = np.full((*pool, config.cache_columns), np.nan, stored)
    kv_scales = None
    if config.rope_aware:
        kv_scales = np.full(pool[:2], np.nan, np.float32)
        cache.view(np.uint8)[...] = 0xFF  # NaN in e4m3 and in bf16
    table = np.full((len(lengths), max(needed) + 2), NO_PAGE, np.int32)
    table[:, 1::2] = order[-1]  # of the spare pages
    q = np.empty((len(lengths), config.q_len, config.num_heads, config.q_columns), element)
    q_scales = np.empty(q.shape[:2], np.float32) if config.rope_aware_queries else None
    taken = 0
    for sequence, length in enumerate(lengths):
        pages = order[taken : taken + needed[sequence]]
        taken += len(pages)
        table[sequence, : len(pages)] = pages
        for kv_head in range(config.num_kv_heads):
            heads = slice(kv_head * config.group, (kv_head + 1) * config.group)
            queries, rows = MLA_DECODE_KINDS[data](rng, shared, length)
            if kv_scales is not None:
                rows, scales = rope_aware_rows(rows, config.d_v)
            if q_scales is None:
                q[sequence, :, heads] = queries[:, heads] / q_scale
            else:
                for token, of_heads in enumerate(queries):
                    q[sequence, token], same = rope_aware_rows(of_heads, config.d_v, alone=False)
                    q_scales[sequence, token] = same[0]
            for index, page in enumerate(pages):
                own = slice(index * config.page_size, (index + 1) * config.page_size)
                part = rows[own] if config.rope_aware else rows[own] / kv_scale
                cache[page, : len(part), kv_head] = part
                if kv_scales is not None:
                    kv_scales[page, : len(part)] = scales[own]
    return MlaDecodeInputs(
        config, q, cache, table, np.array(lengths, np.int32), scale, kv_scale, q_scale, kv_scales,
        q_scales,
    )  # fmt: skip


def rope_aware_rows(rows: Array, latent: int, *, alone: bool = True) -> tuple[Any, Any]:
    """Rows [length, latent + rope] as rope-aware ones store them: bytes [length, latent + 2 *
    rope], named e4m3, and their scales [length], fp32. The largest latent number becomes 448; the
    rotary columns are divided by the scale too. Not `alone`: all rows have one scale."""
    largest = np.abs(rows[:, :latent]).max(axis=1, initial=0.0)
    if not alone:
        largest = np.full(largest.shape, largest.max(initial=0.0))
    scales = np.where(largest > 0, largest / E4M3_MAX, 1.0).astype(np.float32)
    units = rows / scales[:, None].astype(np.float64)
    content = np.clip(units[:, :latent], -E4M3_MAX, E4M3_MAX).astype(E4M3)
    return np.concatenate([content, units[:, latent:].astype(BF16).view(E4M3)], axis=1), scales


class _Model:
    """What all sequences of one MLA model have in common."""

    def __init__(self, rng: np.random.Generator, config: MlaDecodeConfig, scale: float) -> None:
        self.config, self.scale = config, scale
        heads, latent, rope = config.num_heads, config.d_v, config.d_rope
        self.q = (config.q_len, heads, config.d_qk)
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
        """[positions, d_rope]: the start vector, turned."""
        turned = self.start * np.exp(1j * positions[:, None] * self.frequency)
        pairs = np.stack([turned.real, turned.imag], axis=-1)
        return pairs.reshape(len(positions), self.config.d_rope)


def _mla_randn(rng: np.random.Generator, m: _Model, length: int) -> tuple[Array, Array]:
    return rng.standard_normal(m.q), rng.standard_normal((length, m.config.d_qk))


def _mla_realistic(rng: np.random.Generator, m: _Model, length: int) -> tuple[Array, Array]:
    latent = m.config.d_v
    q, rows = _mla_randn(rng, m, length)
    c, rope = rows[:, :latent], rows[:, latent:]

    # Topics: slow random walks over the positions.
    walk = rng.standard_normal((length + m.config.q_len, TOPICS))
    for position in range(1, len(walk)):
        walk[position] = 0.98 * walk[position - 1] + 0.2 * walk[position]
    c += walk[:length] @ m.basis
    q[..., :latent] += (walk[length:] @ m.basis)[:, None] / 8
    c /= np.sqrt(np.square(c).mean(axis=1, keepdims=True)) / m.gain
    c *= 1.0 + 0.2 * np.abs(rng.standard_t(4, c.shape))

    rope *= 0.5
    rope += m.rotary(np.arange(length, dtype=float))
    now = length - m.config.q_len + np.arange(m.config.q_len, dtype=float)
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


def _mla_stairs(sign: float) -> Callable[[np.random.Generator, _Model, int], tuple[Array, Array]]:
    def stairs(rng: np.random.Generator, m: _Model, length: int) -> tuple[Array, Array]:
        q, rows = _mla_randn(rng, m, length)
        q_rope, rope = q[..., m.config.d_v :], rows[:, m.config.d_v :]
        q_rope += (4.0 - q_rope @ m.direction)[..., None] * m.direction
        # A step in every second eighth of the keys, at a place that is not a tile's.
        eighth = np.arange(length) * 8 // max(length, 1)
        level = sign * STEP * ((eighth + 1) // 2) + rng.uniform(-0.5, 0.5, length)
        rope += (level / (4.0 * m.scale * math.log2(math.e)))[:, None] * m.direction
        return q, rows

    return stairs


MLA_DECODE_KINDS: dict[str, Callable[[np.random.Generator, _Model, int], tuple[Array, Array]]] = {
    "realistic": _mla_realistic,
    "randn": _mla_randn,
    "late_max": _mla_stairs(1.0),
    "falling": _mla_stairs(-1.0),
}
