"""Made-up inputs of MLA prefill: see `mlagen.attention.made_up`.

Levels, outliers and jumps lie in the columns without position, so that a rotary part which all
heads share, and values which are the keys' own columns, leave them as they are.

Three more kinds: `half`, standard normal numbers times 0.5; `peaked`, queries times 8, so that few
keys matter; `constant`, one key repeated, so that O is a mean.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlagen.attention.made_up import Array
from mlagen.attention.prefill.data_kinds import KINDS
from mlagen.attention.prefill.made_up import Draw, MadeUp, Shapes, Tensors
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.problem import MlaConfigV2


def _tensors(config: MlaConfigV2, q: Array, k: Array, v: Array) -> Tensors:
    """Tensors in the problem's form, [batch, rows or keys, ...]."""
    nope, rope = k[..., : config.depth], k[..., config.depth :]
    if config.kv_form == "k_and_v":
        return {"q": q, "k": k, "v": v[..., : config.depth]}
    if config.kv_form == "nope_rope":
        return {"q": q, "k": nope, "v": v[..., : config.depth], "k_rope": rope[:, :, 0]}
    latent = np.full((*k.shape[:3], config.cache_depth), np.nan)
    latent[..., : config.depth] = nope
    first = config.rope_cache_offset
    latent[..., first : first + config.d_rope] = rope
    return {"q": q, "k": latent}


def _scaled(factor_q: float, factor: float) -> Draw:
    def scaled(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
        q, k, v = KINDS["randn"](rng, s)
        return factor_q * q, factor * k, factor * v

    return scaled


def _constant(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    """Every key scores the same, and every value differs: O is a mean."""
    q, k, v = KINDS["randn"](rng, s)
    return q, np.broadcast_to(k[:, :1], k.shape).copy(), v


MLA_PREFILL_KINDS: Mapping[str, Draw] = {
    **KINDS,
    "half": _scaled(0.5, 0.5),  # the published kernel's own test data
    "peaked": _scaled(8.0, 1.0),
    "constant": _constant,
}

mla_prefill_inputs = MadeUp(MlaPrefillInputs, MLA_PREFILL_KINDS, _tensors)
