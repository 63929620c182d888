"""Made-up inputs of MLA prefill: see `mlagen.attention.made_up`.

Levels, outliers and jumps lie in the columns without position, so that a rotary part which all
heads share, and values which are the keys' own columns, leave them as they are.

Three more kinds: `half`, standard normal numbers times 0.5; `peaked`, queries times 8, so that few
keys matter; `constant`, one key repeated, so that O is a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlagen.attention.made_up import Array, Numbers, require_kind
from mlagen.attention.prefill.data_kinds import KINDS, SCALED
from mlagen.attention.prefill.made_up import Drawn, Shapes, Sizes, Tensors
from mlagen.attention.prefill.scales import check_scale, default_scale
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.problem import MlaConfigV2


def mla_prefill_inputs(
    config: MlaConfigV2,
    *,
    batch: int | None = None,
    seq_len: int | None = None,
    lengths: Sequence[int] | None = None,
    num_keys: Numbers | None = None,
    start_pos: Numbers = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
    quantise: bool = False,
) -> MlaPrefillInputs:
    """Inputs of an MLA prefill problem; sizes are those of `mha_inputs`.

    The numbers are rounded to the problem's dtype. `quantise` (fp8): each tensor is divided by its
    largest magnitude / 448 before, and the scales say so; otherwise they are 1.

    Raises ConfigError as `mha_inputs` does.
    """
    require_kind(data, MLA_PREFILL_KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)
    drawn = Drawn.of(
        config, rng, lambda shapes: _tensors(rng, config, data, shapes), scale,
        Sizes(batch, seq_len, lengths, num_keys, start_pos),
    )  # fmt: skip
    scales: dict[str, float] = {}
    if quantise and config.kv_form == "latent":  # K's rows are V's
        scales = drawn.quantise({"q_scale": ("q",), "k_scale": ("k",)})
        scales["v_scale"] = scales["k_scale"]
    elif quantise:
        scales = drawn.quantise(SCALED | {"k_scale": ("k", "k_rope")})
    given: dict[str, Any] = {"v": None, **drawn.arrays(rng), **scales}
    return MlaPrefillInputs(config, scale=scale, **given)


def _tensors(rng: np.random.Generator, config: MlaConfigV2, data: str, shapes: Shapes) -> Tensors:
    """fp64 tensors in the problem's form, [batch, rows or keys, ...]."""
    q, k, v = MLA_PREFILL_KINDS[data](rng, shapes)
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


def _scaled(factor_q: float, factor: float) -> Callable[..., tuple[Array, Array, Array]]:
    def scaled(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
        q, k, v = KINDS["randn"](rng, s)
        return factor_q * q, factor * k, factor * v

    return scaled


def _constant(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    """Every key scores the same, and every value differs: O is a mean."""
    q, k, v = KINDS["randn"](rng, s)
    return q, np.broadcast_to(k[:, :1], k.shape).copy(), v


MLA_PREFILL_KINDS: dict[
    str, Callable[[np.random.Generator, Shapes], tuple[Array, Array, Array]]
] = {
    **KINDS,
    "half": _scaled(0.5, 0.5),  # the published kernel's own test data
    "peaked": _scaled(8.0, 1.0),
    "constant": _constant,
}
