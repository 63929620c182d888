"""A sequence's queries and keys, as both oracles of MLA decode take them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlagen.attention.latent.walk import Ints, Keys, QueryRows
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs

ROWS = 128  # query rows a block: [128, keys] fp64 matrices stay small for thousands of keys


def sequence_rows(
    inputs: MlaDecodeInputs, sequence: int, heads: Ints
) -> Iterator[tuple[int, Ints, QueryRows]]:
    """The query rows of a sequence in blocks: their KV head, where they stand in [q_len, heads]
    flattened, and they."""
    config = inputs.config
    q = inputs.queries(sequence)[:, heads].reshape(-1, config.d_qk)
    scales = np.ones(config.q_len)
    if inputs.q_scales is not None:
        scales = inputs.q_scales[sequence].astype(np.float64)
    length = int(inputs.cache_lengths[sequence])
    index = np.arange(length)
    visible = [(index >= keys.start) & (index < keys.stop) for keys in config.visible(length)]
    seen = np.repeat(np.array(visible).reshape(config.q_len, length), len(heads), axis=0)
    if not np.isfinite(q).all():
        raise ConfigError(f"q of sequence {sequence} is not finite: nothing is expected of it")
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise ConfigError(f"q_scales of sequence {sequence} are not all positive and finite")
    scales = np.repeat(scales, len(heads))
    of_head = np.tile(heads // config.group, config.q_len)
    for kv_head in np.unique(of_head).tolist():
        rows = np.flatnonzero(of_head == kv_head)
        for start in range(0, len(rows), ROWS):
            at = rows[start : start + ROWS]
            yield kv_head, at, QueryRows(q[at], scales[at], seen[at])


def sequence_keys(inputs: MlaDecodeInputs, sequence: int, kv_head: int) -> Keys:
    """The keys of a sequence. ConfigError where a row is not finite, or its scale negative or not
    finite."""
    rows, scales = inputs.rows(sequence, kv_head), inputs.row_scales(sequence)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1) | ~(np.isfinite(scales) & (scales >= 0)))
    if bad.size:
        of = f", or its scale {scales[bad[0]]} is none," if inputs.kv_scales is not None else ","
        raise ConfigError(
            f"row {bad[0]} of sequence {sequence} is not finite{of} and it is one of its "
            f"{len(rows)} keys: nothing is expected of it"
        )
    return Keys(rows, scales, inputs.kv_scales is not None)
