"""Made-up inputs of MHA: see `mlagen.attention.made_up`.

With a sink: sinks from below the scores to above them, and one of -inf where there are several
heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.attention.prefill.data_kinds import KINDS
from mlagen.attention.prefill.made_up import MadeUp
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2


def _sinks(rng: np.random.Generator, config: MhaConfigV2) -> dict[str, Any]:
    """Natural units, from below most rows' log-sum-exp to above them, in random order."""
    if not config.sink:
        return {}
    heads = config.num_heads
    finite = max(heads - 1, 1)
    levels = np.linspace(-4.0, 14.0, finite) if finite > 1 else np.full(1, 6.0)
    levels = rng.permutation(levels) + rng.uniform(-1.0, 1.0, finite)
    if heads > 1:
        levels = np.insert(levels, 1, -np.inf)
    return {"sinks": levels.astype(np.float32)}


mha_inputs = MadeUp(MhaInputs, KINDS, more=_sinks)
