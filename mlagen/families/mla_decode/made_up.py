"""Made-up inputs of MLA decode: see `mlagen.attention.latent.made_up`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mlagen.attention.latent.made_up import LATENT_KINDS, Model, Sizes
from mlagen.attention.latent.rope_aware import rope_aware_rows
from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.attention.made_up import NO_PAGE, require_kind
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.problem.arrays import untouched
from mlagen.problem.formats import ELEMENT_TYPES

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
    only: Collection[int] | None = None,
) -> MlaDecodeInputs:
    """Inputs of an MLA decode problem with a shuffled, poisoned cache.

    `lengths`: rows of each sequence; without them `batch` of them are drawn, 1 .. `max_length`,
    short ones as likely as long ones. Pages lie in the pool in random order, among others that no
    sequence uses. All that is no key is NaN: unused pages, and rows past a sequence's end. Table
    entries past a sequence's pages name an unused page or one that does not exist. `only`: the
    sequences that have queries and keys; those of others, and unused pages, are `untouched`.

    Raises ConfigError for a number below 1, an unknown kind of data, and what MlaDecodeInputs
    refuses.
    """
    for name, value in (("batch", batch), ("max_length", max_length)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    require_kind(data, LATENT_KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    if lengths is None:
        lengths = np.exp(rng.uniform(0.0, math.log(max_length + 1), batch)).astype(int).tolist()
    if not len(lengths) or min(lengths) < 0:
        raise ConfigError(f"lengths {list(lengths)} must be one or more, none negative")

    element, stored = ELEMENT_TYPES[config.q_element], ELEMENT_TYPES[config.cache_element]
    kv_scale = FP8_STEP if config.cache_dtype == "fp8_e4m3" else 1.0
    q_scale = FP8_QUERY_STEP if config.dtype == "fp8_e4m3" else 1.0
    shared = Model(rng, Sizes(config.num_heads, config.q_len, config.d_v, config.d_rope), scale)
    needed = [config.pages(length) for length in lengths]
    spare = 2 + sum(needed) // 4
    order = rng.permutation(sum(needed) + spare)
    pool = (len(order), config.page_size, config.num_kv_heads)
    room = np.empty if only is None else untouched
    cache = room((*pool, config.cache_columns), stored)
    kv_scales = room(pool[:2], np.float32) if config.rope_aware else None
    if only is None:
        _poison(cache, kv_scales, slice(None))
    table = np.full((len(lengths), max(needed) + 2), NO_PAGE, np.int32)
    table[:, 1::2] = order[-1]  # of the spare pages
    q = room((len(lengths), config.q_len, config.num_heads, config.q_columns), element)
    q_scales = room(q.shape[:2], np.float32) if config.rope_aware_queries else None
    taken = 0
    for sequence, length in enumerate(lengths):
        pages = order[taken : taken + needed[sequence]]
        taken += len(pages)
        table[sequence, : len(pages)] = pages
        if only is not None:
            if sequence not in only:
                continue
            _poison(cache, kv_scales, pages)
        for kv_head in range(config.num_kv_heads):
            heads = slice(kv_head * config.group, (kv_head + 1) * config.group)
            queries, rows = LATENT_KINDS[data](rng, shared, length)
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


def _poison(cache: Any, kv_scales: Any, pages: Any) -> None:
    """NaN in these pages, of every format."""
    cache.view(np.uint8)[pages] = 0xFF
    if kv_scales is not None:
        kv_scales[pages] = np.nan
