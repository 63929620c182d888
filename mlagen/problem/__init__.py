"""Problems: validated configurations, masks as predicates, inputs and the oracles.

from mlagen.problem import MhaConfig, MhaInputs, exact, rounded, compare

expected = exact(inputs)  # or rounded(inputs)
compare(expected.output, inputs.output_view(o)), compare(expected.lse, inputs.lse_view(lse))

The oracles of MLA decode are `mla_decode_exact.exact` and `mla_decode_rounded.rounded`.
"""

from mlagen.problem.expected import Comparison, Expected, HeadErrors, Worst, compare
from mlagen.problem.masks import (
    Causal,
    ChunkedCausal,
    Mask,
    Null,
    SlidingWindowCausal,
    TileStatus,
)
from mlagen.problem.mha import MhaConfig
from mlagen.problem.mha_exact import exact
from mlagen.problem.mha_expected import MhaExpected
from mlagen.problem.mha_inputs import MhaInputs, MhaSequence, default_scale
from mlagen.problem.mha_rounded import rounded
from mlagen.problem.mla_decode import MlaDecodeConfig
from mlagen.problem.mla_decode_expected import MlaDecodeExpected, compare_lse
from mlagen.problem.mla_decode_inputs import MODEL_SCALE, MlaDecodeInputs

__all__ = [
    "MODEL_SCALE",
    "Causal",
    "ChunkedCausal",
    "Comparison",
    "Expected",
    "HeadErrors",
    "Mask",
    "MhaConfig",
    "MhaExpected",
    "MhaInputs",
    "MhaSequence",
    "MlaDecodeConfig",
    "MlaDecodeExpected",
    "MlaDecodeInputs",
    "Null",
    "SlidingWindowCausal",
    "TileStatus",
    "Worst",
    "compare",
    "compare_lse",
    "default_scale",
    "exact",
    "rounded",
]
