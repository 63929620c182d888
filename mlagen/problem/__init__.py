"""Problems: validated configurations, masks as predicates, inputs and the oracles.

from mlagen.problem import MhaConfig, MhaInputs, exact, rounded, compare
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
from mlagen.problem.mha_exact import MhaExact, exact
from mlagen.problem.mha_inputs import MhaInputs, default_scale
from mlagen.problem.mha_rounded import rounded

__all__ = [
    "Causal",
    "ChunkedCausal",
    "Comparison",
    "Expected",
    "HeadErrors",
    "Mask",
    "MhaConfig",
    "MhaExact",
    "MhaInputs",
    "Null",
    "SlidingWindowCausal",
    "TileStatus",
    "Worst",
    "compare",
    "default_scale",
    "exact",
    "rounded",
]
