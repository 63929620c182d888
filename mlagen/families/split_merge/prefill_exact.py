"""The exact oracle of the reduce kernel: the merge in fp64, and how far a right kernel may be off.

The arithmetic and its bound are `attention.prefill.merging`'s. Nothing here is fitted to
what a kernel does.
"""

from __future__ import annotations

import numpy as np

from mlagen.attention.prefill.expected import PrefillExpected
from mlagen.attention.prefill.merging import merged
from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.problem.expected import Expected


def exact(inputs: MlaReduceInputs) -> PrefillExpected:
    """The merge of all groups in fp64 with the bounds above: O and LSE of the merged rows, for
    `compare` with those of the whole call, as [1, rows, heads, depth] and [1, rows, heads, 1].
    ConfigError: there is no group with partials."""
    groups = inputs.merged
    if not groups:
        raise ConfigError("no group has a partial: there is nothing to merge")
    made = [merged(*(np.stack(parts).astype(np.float64) for parts in inputs.parts(g)))
            for g in groups]  # fmt: skip
    rows = np.concatenate([np.arange(group.first, group.end) for group in groups])
    heads = np.arange(inputs.config.num_heads)
    output, bounds, lse, lse_bounds = (
        np.concatenate(arrays)[None] for arrays in zip(*made, strict=True)
    )
    return PrefillExpected(
        Expected("exact", output, bounds, rows, heads),
        Expected("exact LSE", lse[..., None], lse_bounds[..., None], rows, heads, output="lse"),
    )
