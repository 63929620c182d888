"""Orders of MLA decode's kernels that depend on its cache."""

from __future__ import annotations

from mlagen.attention.latent.order import KEYS_AS_F16, SCORES_OF_F16

# Few query rows on Hopper over these caches, whose keys become what products are of in registers.
FROM_REGISTERS = {"fp8_e4m3": KEYS_AS_F16, "fp8_rope_aware": SCORES_OF_F16}
