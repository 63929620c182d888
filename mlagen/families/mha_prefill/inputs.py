"""One call's data of an MHA problem: its tensors with their run-time numbers, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.arrays import checked_sinks
from mlagen.attention.prefill.inputs import PrefillInputs, PrefillSequence
from mlagen.families.mha_prefill.problem import MhaConfigV2


@dataclass(frozen=True, eq=False)
class MhaInputs(PrefillInputs):
    """Q, K, V and the run-time numbers of one call of an MHA kernel; see `PrefillInputs`.

    `q`, `k` and `v` have the shapes of the problem's form (see `mha_prefill.problem`).

    With a sink: `sinks` [num_heads], fp32 (or bf16, which is widened), natural units; -inf is none.

    Raises ConfigError for what is missing, what the form does not take, and shapes, types and
    numbers that do not fit.
    """

    config: MhaConfigV2
    v: npt.NDArray[Any]
    sinks: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        self._check_scales()
        self._check_form({"sinks": self.config.sink})
        if self.config.sink:
            object.__setattr__(self, "sinks", checked_sinks(self.config, self.sinks))

    def key_rows(self, sequence: PrefillSequence, kv_head: int) -> tuple[Any, Any]:
        """The keys and the values of a sequence, [keys, depth] each, in their order."""
        k, v = (self.gathered(sequence, tensor)[:, kv_head] for tensor in (self.k, self.v))
        return k, v

    def sink_of(self, head: int) -> float:
        """The head's sink in natural units; -inf where there is none."""
        return -math.inf if self.sinks is None else float(self.sinks[head])
