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

MLA decode has the first four kinds; its latent rows are normalised, its sinks have small latents,
and its rotary columns turn with the position.

Where sequences have their own lengths each is made alone. Pages lie in the pool in random order,
among others that no sequence uses; whatever a pool or a cache holds that is no key is NaN, and
table entries behind a sequence's pages name an unused page or one that does not exist.

The same arguments give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem import (
    MODEL_SCALE,
    MhaConfig,
    MhaInputs,
    MlaDecodeConfig,
    MlaDecodeInputs,
    default_scale,
)
from mlagen.problem.mha_inputs import ELEMENT_TYPES, check_scale

Array = npt.NDArray[np.float64]

OUTLIER_CHANNELS = 4
SINK_EVERY = 509  # a prime: sinks fall on every place of a tile
TOPICS = 6
NO_PAGE = -1  # in a block table: no pool has it
JUMP_DIRECTIONS = 12
STEP = 12.0  # log2 units that the scores of `late_max` rise and those of `falling` fall by


Numbers = int | Sequence[int]


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
    if data not in KINDS:
        raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)
    if not config.by_sequence:
        return _dense(config, rng, batch, seq_len, lengths, num_keys, start_pos, data, scale)
    rows = _rows(config, rng, batch, seq_len, lengths)
    starts = _each("start_pos", start_pos, len(rows))
    wanted = [s + r for s, r in zip(starts, rows, strict=True)] if num_keys is None else num_keys
    keys = _each("num_keys", wanted, len(rows))
    element = ELEMENT_TYPES[config.dtype]
    made = []
    for r, n, start in zip(rows, keys, starts, strict=True):
        # An empty sequence is made of one row or key too, which is cut off.
        shapes = _Shapes(config, 1, max(r, 1), max(n, 1), start, scale)
        q, k, v = (array[0].astype(element) for array in KINDS[data](rng, shapes))
        made.append((q[:r], k[:n], v[:n]))
    queries, key_rows, value_rows = ([entry[part] for entry in made] for part in range(3))
    more: dict[str, Any] = {"sinks": _sinks(rng, config)}  # before the pages: the same without them
    if config.ragged:
        more["q_offsets"] = np.cumsum([0, *rows], dtype=np.int32)
    if config.page_size:
        table, (k, v) = _paged(rng, config, keys, (key_rows, value_rows))
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
    config: MhaConfig,
    rng: np.random.Generator,
    batch: int | None,
    seq_len: int | None,
    lengths: Any,
    num_keys: Any,
    start_pos: Any,
    data: str,
    scale: float,
) -> MhaInputs:
    """Inputs of a dense, contiguous problem."""
    if lengths is not None:
        raise ConfigError(
            f"lengths={_shown(lengths)}: the kernel is dense, all its sequences have seq_len rows",
            hint="ragged=true makes a kernel that takes lengths",
        )
    for name, value in (("num_keys", num_keys), ("start_pos", start_pos)):
        if isinstance(value, Sequence):
            raise ConfigError(
                f"{name}={_shown(value)}: the kernel is dense and contiguous, and takes one number",
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
    shapes = _Shapes(config, batch, seq_len, max(keys, 1), start_pos, scale)
    q, k, v = (array.astype(ELEMENT_TYPES[config.dtype]) for array in KINDS[data](rng, shapes))
    sinks = _sinks(rng, config)
    return MhaInputs(config, q, k[:, :keys], v[:, :keys], scale, start_pos, sinks=sinks)


def _rows(
    config: MhaConfig,
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
                    f"{name}={value} and lengths={_shown(lengths)} say the same twice",
                    hint="give one of them",
                )
        if not lengths or min(lengths) < 0:
            raise ConfigError(
                f"lengths={_shown(lengths)}: one or more numbers, none of them negative"
            )
        return list(lengths)
    if lengths is not None:
        raise ConfigError(
            f"lengths={_shown(lengths)}: the kernel is not ragged, all its sequences have seq_len "
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


def _each(name: str, numbers: Any, count: int) -> list[int]:
    """One number a sequence, none negative, from one for all or from as many."""
    each = list(numbers) if isinstance(numbers, Sequence) else [numbers] * count
    if len(each) != count:
        raise ConfigError(
            f"{name}={_shown(each)} are {len(each)} numbers for {count} sequences",
            hint="one number for all, or one a sequence",
        )
    if min(each) < 0:
        raise ConfigError(f"{name}={_shown(each)} must not be negative")
    return each


def _shown(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers)


def _paged(
    rng: np.random.Generator,
    config: MhaConfig,
    keys: Sequence[int],
    tensors: tuple[list[Any], list[Any]],
) -> tuple[npt.NDArray[np.int32], list[Any]]:
    """Page table and pools of `tensors`, which hold the rows of each sequence."""
    needed = [config.pages(count) for count in keys]
    order = rng.permutation(sum(needed) + 2 + sum(needed) // 4)
    table = np.full((len(keys), max(needed) + 2), NO_PAGE, np.int32)
    table[:, 1::2] = order[-1]  # of the spare pages
    shape = (len(order), config.page_size, config.num_kv_heads, config.depth)
    pools = [np.full(shape, np.nan, ELEMENT_TYPES[config.dtype]) for _ in tensors]
    taken = 0
    for sequence, count in enumerate(needed):
        pages = order[taken : taken + count]
        taken += count
        table[sequence, :count] = pages
        for pool, rows in zip(pools, tensors, strict=True):
            for index, page in enumerate(pages):
                part = rows[sequence][index * config.page_size : (index + 1) * config.page_size]
                pool[page, : len(part)] = part
    return table, pools


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


def _jumps(rng: np.random.Generator, s: _Shapes) -> tuple[Array, Array, Array]:
    q, k, v = _randn(rng, s)
    # Some directions of each head; a row lies along one of them, a key that jumps as well.
    shape = (s.config.num_kv_heads, JUMP_DIRECTIONS, s.config.depth)
    directions = rng.standard_normal(shape)
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


KINDS: dict[str, Callable[[np.random.Generator, _Shapes], tuple[Any, Any, Any]]] = {
    "realistic": _realistic,
    "randn": _randn,
    "late_max": _stairs(1.0),
    "falling": _stairs(-1.0),
    "jumps": _jumps,
}


# ---- MLA decode ----------------------------------------------------------------------------------


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
    sequence uses. All that is no key is NaN: unused pages, and rows behind a sequence's end. Table
    entries behind a sequence's pages name an unused page or one that does not exist.

    Raises ConfigError for a number below 1, an unknown kind of data, and what MlaDecodeInputs
    refuses.
    """
    for name, value in (("batch", batch), ("max_length", max_length)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    if data not in MLA_DECODE_KINDS:
        raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(MLA_DECODE_KINDS)}")
    rng = np.random.default_rng([seed, *data.encode()])
    if lengths is None:
        lengths = np.exp(rng.uniform(0.0, math.log(max_length + 1), batch)).astype(int).tolist()
    if not len(lengths) or min(lengths) < 0:
        raise ConfigError(f"lengths {list(lengths)} must be one or more, none negative")

    element = ELEMENT_TYPES[config.dtype]
    shared = _Model(rng, config, scale)
    needed = [config.pages(length) for length in lengths]
    spare = 2 + sum(needed) // 4
    order = rng.permutation(sum(needed) + spare)
    cache = np.full((len(order), config.page_size, 1, config.d_qk), np.nan, element)
    table = np.full((len(lengths), max(needed) + 2), NO_PAGE, np.int32)
    table[:, 1::2] = order[-1]  # of the spare pages
    q = np.empty((len(lengths), config.q_len, config.num_heads, config.d_qk), element)
    taken = 0
    for sequence, length in enumerate(lengths):
        q[sequence], rows = MLA_DECODE_KINDS[data](rng, shared, length)
        pages = order[taken : taken + needed[sequence]]
        taken += len(pages)
        table[sequence, : len(pages)] = pages
        for index, page in enumerate(pages):
            part = rows[index * config.page_size : (index + 1) * config.page_size]
            cache[page, : len(part), 0] = part
    return MlaDecodeInputs(config, q, cache, table, np.array(lengths, np.int32), scale)


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
