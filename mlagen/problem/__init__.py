"""Problems: validated configurations, masks as predicates, inputs and the oracles.

from mlagen.problem import MhaConfig, MhaInputs, exact, rounded, compare

expected = exact(inputs)  # or rounded(inputs)
compare(expected.output, inputs.output_view(o)), compare(expected.lse, inputs.lse_view(lse))

`exact` and `rounded` are for MHA and for MLA prefill. The oracles of MLA decode are
`mla_decode_exact.exact` and `mla_decode_rounded.rounded`, that of merging split MLA prefill work is
`mla_reduce_exact.exact`.
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
from mlagen.problem.mha_expected import PrefillExpected
from mlagen.problem.mha_inputs import MhaInputs
from mlagen.problem.mha_rounded import rounded
from mlagen.problem.mla import MlaConfig
from mlagen.problem.mla_decode import MlaDecodeConfig
from mlagen.problem.mla_decode_expected import MlaDecodeExpected, compare_lse
from mlagen.problem.mla_decode_inputs import MODEL_SCALE, MlaDecodeInputs
from mlagen.problem.mla_decode_merge import MlaDecodeMergeConfig
from mlagen.problem.mla_decode_plan import MlaDecodeWork, plan_work
from mlagen.problem.mla_prefill_inputs import MlaPrefillInputs
from mlagen.problem.mla_reduce import MlaReduceConfig
from mlagen.problem.mla_reduce_inputs import MlaReduceInputs
from mlagen.problem.prefill_inputs import PrefillInputs, PrefillSequence
from mlagen.problem.prefill_scales import default_scale

__all__ = [
    "MODEL_SCALE",
    "Causal",
    "ChunkedCausal",
    "Comparison",
    "Expected",
    "HeadErrors",
    "Mask",
    "MhaConfig",
    "MhaInputs",
    "MlaConfig",
    "MlaDecodeConfig",
    "MlaDecodeExpected",
    "MlaDecodeInputs",
    "MlaDecodeMergeConfig",
    "MlaDecodeWork",
    "MlaPrefillInputs",
    "MlaReduceConfig",
    "MlaReduceInputs",
    "Null",
    "PrefillExpected",
    "PrefillInputs",
    "PrefillSequence",
    "SlidingWindowCausal",
    "TileStatus",
    "Worst",
    "compare",
    "compare_lse",
    "default_scale",
    "exact",
    "plan_work",
    "rounded",
]
