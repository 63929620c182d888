"""One call's data of an MLA prefill problem: its tensors with their run-time numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.inputs import PrefillInputs, PrefillSequence
from mlagen.families.mla_prefill.problem import MlaConfigV2


@dataclass(frozen=True, eq=False)
class MlaPrefillInputs(PrefillInputs):
    """Q, K, V and the run-time numbers of one call of an MLA prefill kernel; see `PrefillInputs`.

    `q`, `k`, `v` and `k_rope` have the shapes of the problem's form (see `mla_prefill.problem`):
    `v` is None for latent rows, `k_rope` is given for `nope_rope` alone.

    The model's `scale` is 1 / sqrt(192). `k_scale` is that of `k_rope` too. Latent rows are K and V
    at once: there `v_scale` belongs to the reading as V.

    Raises ConfigError for what is missing, what the form does not take, and shapes, types and
    numbers that do not fit.
    """

    config: MlaConfigV2
    k_rope: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._check_scales()
        form = self.config.kv_form
        self._check_form({"v": form != "latent", "k_rope": form == "nope_rope"})

    def key_rows(self, sequence: PrefillSequence, kv_head: int) -> tuple[Any, Any]:
        """The keys [keys, 192] and the values [keys, 128] of a sequence, in their order."""
        config = self.config
        k = self.gathered(sequence, self.k)[:, kv_head]
        if self.v is not None:
            v = self.gathered(sequence, self.v)[:, kv_head]
            if self.k_rope is None:
                return k, v
            return np.concatenate([k, self.gathered(sequence, self.k_rope)], axis=1), v
        nope = k[:, : config.depth]
        rope = k[:, config.rope_cache_offset : config.rope_cache_offset + config.d_rope]
        return np.concatenate([nope, rope], axis=1), nope
